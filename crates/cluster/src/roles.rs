//! What the holder of a certificate may do.
//!
//! | a session or command | role that it needs |
//! |---|---|
//! | requests of a client | `client-ID`, of that id |
//! | orders of a coordinator | `coordinator` |
//! | `Describe`, `Report`, `Welcome` | any |
//! | `Format`, `Evict`, `AcceptLoss` | `admin` |
//! | to be connected to, as a member or coordinator | `member`, `coordinator` |
//!
//! Owns the rule only. The program verifies certificates, `net::cluster` applies the rule to the
//! first frame of a connection and to commands.

use std::fmt;
use std::str::FromStr;

use crate::ids::ClientId;
use crate::session::{Ask, Speaker};

/// What a process of a cluster is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// The server of a member.
    Member,
    /// A coordinator, leading or not.
    Coordinator,
    /// The client of this id.
    Client(ClientId),
    /// A person or a fence agent, who erases and evicts.
    Admin,
}

impl Role {
    /// The role that sessions of this speaker need; none if any role will do.
    pub fn of(speaker: Speaker) -> Option<Role> {
        match speaker {
            Speaker::Client(id, _) => Some(Role::Client(id)),
            Speaker::Candidate(_) => Some(Role::Coordinator),
            Speaker::Operator => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Member => f.write_str("member"),
            Role::Coordinator => f.write_str("coordinator"),
            Role::Client(id) => write!(f, "client-{}", id.0),
            Role::Admin => f.write_str("admin"),
        }
    }
}

impl FromStr for Role {
    type Err = String;

    /// Accepts what `Display` writes, and nothing else: `client-01` would be a second name.
    fn from_str(text: &str) -> Result<Role, String> {
        let role = match text {
            "member" => Some(Role::Member),
            "coordinator" => Some(Role::Coordinator),
            "admin" => Some(Role::Admin),
            _ => text.strip_prefix("client-").and_then(|id| id.parse().ok()).map(client),
        };
        let role = role.filter(|role| *role != client(0) && role.to_string() == text);
        role.ok_or_else(|| format!("{text}: not member, coordinator, client-ID or admin"))
    }
}

fn client(id: u32) -> Role {
    Role::Client(ClientId(id))
}

/// The other end of a connection, as far as the transport vouches for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The transport asks for no certificate: a unix socket, or a network of trusted hosts.
    Anyone,
    /// A certificate with these roles.
    Of(Vec<Role>),
}

impl Holder {
    /// True if it may act in this role.
    pub fn has(&self, role: Role) -> bool {
        match self {
            Holder::Anyone => true,
            Holder::Of(roles) => roles.contains(&role),
        }
    }

    /// True if it may open a session of this speaker.
    pub fn may_speak(&self, speaker: Speaker) -> bool {
        match (Role::of(speaker), self) {
            (Some(role), _) => self.has(role),
            (None, Holder::Of(roles)) => !roles.is_empty(),
            (None, Holder::Anyone) => true,
        }
    }

    /// True if it may give this command.
    pub fn may_ask(&self, ask: &Ask) -> bool {
        match ask {
            Ask::Describe | Ask::Welcome | Ask::Report => self.may_speak(Speaker::Operator),
            Ask::Format(_) | Ask::Evict(_) | Ask::AcceptLoss => self.has(Role::Admin),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Anyone => f.write_str("without a certificate"),
            Holder::Of(roles) if roles.is_empty() => f.write_str("a certificate without a role"),
            Holder::Of(roles) => {
                let names: Vec<String> = roles.iter().map(ToString::to_string).collect();
                write!(f, "the certificate of {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CandidateId, Incarnation};

    #[test]
    fn a_role_has_one_name() {
        for role in [Role::Member, Role::Coordinator, client(1), client(u32::MAX), Role::Admin] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        for wrong in ["", "Member", "client", "client-", "client-0", "client-01", "client-+1"] {
            assert!(wrong.parse::<Role>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_role_may_do_its_own_work_only() {
        let speakers = [
            (Speaker::Client(ClientId(1), Incarnation(9)), client(1)),
            (Speaker::Client(ClientId(2), Incarnation(9)), client(2)),
            (Speaker::Candidate(CandidateId(0)), Role::Coordinator),
        ];
        let commands = [Ask::Describe, Ask::Welcome, Ask::Report, Ask::AcceptLoss];
        for role in [Role::Member, Role::Coordinator, client(1), client(2), Role::Admin] {
            let holder = Holder::Of(vec![role]);
            for (speaker, needed) in speakers {
                assert_eq!(holder.may_speak(speaker), role == needed, "{role} {speaker:?}");
            }
            assert!(holder.may_speak(Speaker::Operator));
            let may = commands.each_ref().map(|ask| holder.may_ask(ask));
            assert_eq!(may, [true, true, true, role == Role::Admin], "{role}");
        }
        let stranger = Holder::Of(Vec::new());
        assert!(!stranger.may_speak(Speaker::Operator));
        assert_eq!(commands.each_ref().map(|ask| stranger.may_ask(ask)), [false; 4]);
        assert_eq!(commands.each_ref().map(|ask| Holder::Anyone.may_ask(ask)), [true; 4]);
    }
}
