//! The faults, by name, and what each puts at risk.

use std::collections::BTreeSet;

use crate::processes::Part;

/// Which frames of a host, or of a link, are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Both,
    /// Those to the host.
    Deaf,
    /// Those from it.
    Mute,
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Kill(Part),
    /// SIGSTOP, and later SIGCONT.
    Pause(Part),
    /// All processes of a host are killed.
    Power,
    /// A host is cut off from all others.
    Isolated(Way),
    /// A host is cut off from the next one.
    Link(Way),
    /// SIGSTOP of all processes of all hosts, and later SIGCONT: nobody is dead.
    Standstill,
    /// A backup of etcd is restored that is older than a change of the membership.
    OldStore,
}

/// A fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) what: What,
}

const fn fault(name: &'static str, what: What) -> Fault {
    Fault { name, what }
}

/// All faults, in the order of a run. A parity that a client's death left wrong shows when a member
/// is lost later.
pub(crate) const FAULTS: &[Fault] = &[
    fault("client-killed", What::Kill(Part::Client)),
    fault("member-killed", What::Kill(Part::Member)),
    fault("client-paused", What::Pause(Part::Client)),
    fault("member-paused", What::Pause(Part::Member)),
    fault("coordinator-killed", What::Kill(Part::Coordinator)),
    fault("coordinator-paused", What::Pause(Part::Coordinator)),
    fault("etcd-killed", What::Kill(Part::Etcd)),
    fault("etcd-paused", What::Pause(Part::Etcd)),
    fault("host-killed", What::Power),
    fault("host-cut", What::Isolated(Way::Both)),
    fault("host-deaf", What::Isolated(Way::Deaf)),
    fault("host-mute", What::Isolated(Way::Mute)),
    fault("link-cut", What::Link(Way::Both)),
    fault("link-one-way", What::Link(Way::Mute)),
    fault("all-paused", What::Standstill),
    fault("etcd-restored", What::OldStore),
];

/// Pairs that every run has.
pub(crate) const PAIRS: &[&str] = &[
    "client-killed+coordinator-killed",
    "member-killed+coordinator-killed",
    "client-paused+member-killed",
    "member-paused+coordinator-paused",
    "etcd-killed+coordinator-killed",
    "etcd-paused+member-killed",
    "client-paused+host-cut",
];

/// A fault on a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blow {
    pub(crate) fault: &'static Fault,
    pub(crate) host: usize,
    /// The other end of a link.
    pub(crate) peer: usize,
}

impl Blow {
    fn hits(&self, part: Part) -> BTreeSet<usize> {
        let hit = match self.fault.what {
            What::Kill(hit) | What::Pause(hit) => hit == part,
            What::Power | What::Isolated(_) | What::Link(_) => true,
            What::Standstill | What::OldStore => false,
        };
        hit.then_some(self.host).into_iter().collect()
    }

    /// The client of such a host may be evicted, or stand still.
    pub(crate) fn victims(&self) -> BTreeSet<usize> {
        let mut victims = self.hits(Part::Client);
        if matches!(self.fault.what, What::Link(_)) {
            victims.insert(self.peer);
        }
        victims
    }

    /// This client will be evicted.
    pub(crate) fn evicts(&self) -> bool {
        let what = self.fault.what;
        let certain = [What::Power, What::Isolated(Way::Both)];
        certain.contains(&what)
            || [What::Kill(Part::Client), What::Pause(Part::Client)].contains(&what)
    }
}

/// Members that such faults may cost at a time.
pub(crate) fn members_at_risk(blows: &[Blow]) -> usize {
    union(blows, |blow| blow.hits(Part::Member)).len()
}

/// The hosts whose clients need not go on.
pub(crate) fn victims(blows: &[Blow]) -> BTreeSet<usize> {
    union(blows, Blow::victims)
}

/// True if the cluster must survive all of these at once, with `clients` of which one goes on.
pub(crate) fn is_survivable(blows: &[Blow], tolerated: usize, clients: usize) -> bool {
    let etcds = union(blows, |blow| blow.hits(Part::Etcd)).len();
    let whole = |blow: &Blow| [What::Standstill, What::OldStore].contains(&blow.fault.what);
    let alone = blows.len() == 1 || !blows.iter().any(whole);
    members_at_risk(blows) <= tolerated && etcds <= 1 && victims(blows).len() < clients && alone
}

fn union(blows: &[Blow], of: impl Fn(&Blow) -> BTreeSet<usize>) -> BTreeSet<usize> {
    blows.iter().flat_map(of).collect()
}

/// The faults of a name such as `client-killed+member-killed`.
pub(crate) fn named(name: &str) -> Option<Vec<&'static Fault>> {
    name.split('+').map(|name| FAULTS.iter().find(|fault| fault.name == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blow(name: &str, host: usize) -> Blow {
        Blow { fault: named(name).unwrap()[0], host, peer: (host + 1) % 3 }
    }

    #[test]
    fn a_run_asks_for_no_more_than_the_promise() {
        assert!(PAIRS.iter().all(|pair| named(pair).is_some_and(|faults| faults.len() == 2)));
        assert!(named("client-eaten").is_none());
        let pair = |second: &str, host| [blow("member-killed", 0), blow(second, host)];
        assert!(is_survivable(&pair("client-killed", 1), 1, 3));
        assert!(is_survivable(&pair("host-killed", 0), 1, 3), "the same member");
        assert!(!is_survivable(&pair("host-killed", 1), 1, 3));
        assert!(is_survivable(&pair("host-killed", 1), 2, 3));
        let etcds = [blow("etcd-killed", 0), blow("host-cut", 1)];
        assert!(!is_survivable(&etcds, 1, 3), "no majority");
        assert!(is_survivable(&[blow("all-paused", 0)], 0, 3), "no member is at risk");
        assert!(!is_survivable(&[blow("all-paused", 0), blow("member-killed", 0)], 1, 3));
        assert!(!is_survivable(&[blow("link-cut", 0), blow("client-killed", 2)], 1, 3));
    }
}
