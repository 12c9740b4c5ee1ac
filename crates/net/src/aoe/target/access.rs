//! Which clients may use a LUN: the mask list and the reservation, as pure state.
//!
//! The protocol authenticates nobody: addresses can be forged. Masks and reservations keep honest
//! hosts apart, they do not keep others out.

use io::Mac;

use super::super::wire::access::{Edit, Key, Keyed, KeyedState, Kind, MaskFault};

/// The most entries of a mask list, and of a reservation: an answer of so many fits in one frame at
/// the smallest MTU of Ethernet, and its count in a byte.
pub const MAX_MACS: usize = 180;
/// The most registered keys.
pub const MAX_KEYS: usize = 128;

/// The use that a client wants to make of a LUN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Reading data.
    Read,
    /// Writing data.
    Write,
}

/// The clients that a LUN answers; all, if there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Masks(Vec<Mac>);

impl Masks {
    /// A list of these clients.
    pub fn new(list: impl IntoIterator<Item = Mac>) -> Masks {
        let mut masks = Masks::default();
        for mac in list {
            masks.add(mac);
        }
        masks
    }

    /// The list.
    pub fn list(&self) -> &[Mac] {
        &self.0
    }

    /// True if this client is answered.
    pub fn admits(&self, client: Mac) -> bool {
        self.0.is_empty() || self.0.contains(&client)
    }

    /// Edits the list, all of it or nothing.
    ///
    /// # Errors
    /// The step that fails, by its index, and why.
    pub fn edit(&mut self, edits: &[Edit]) -> Result<(), (MaskFault, usize)> {
        let mut edited = self.clone();
        for (index, edit) in edits.iter().enumerate() {
            match *edit {
                Edit::Skip => {}
                Edit::Add(mac) if mac.is_group() => return Err((MaskFault::Unspecified, index)),
                Edit::Add(mac) if !edited.add(mac) => return Err((MaskFault::Full, index)),
                Edit::Add(_) => {}
                Edit::Remove(mac) => edited.0.retain(|it| *it != mac),
                Edit::Unknown(_) => return Err((MaskFault::Directive, index)),
            }
        }
        *self = edited;
        Ok(())
    }

    /// Adds a client, unless it is there already. False if the list is full.
    fn add(&mut self, mac: Mac) -> bool {
        if self.0.contains(&mac) {
            return true;
        }
        if self.0.len() == MAX_MACS {
            return false;
        }
        self.0.push(mac);
        true
    }
}

/// A request that another client's reservation forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict;

/// A registered client: its key, and the addresses of its ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// Not 0.
    pub key: Key,
    /// Not empty.
    pub macs: Vec<Mac>,
}

/// The reservation of a LUN: by addresses (command 3), or by keys (command 4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reservation {
    /// The addresses that hold it by command 3; none if there is none.
    holders: Vec<Mac>,
    registrations: Vec<Registration>,
    /// The keyed reservation: its kind, and the key that holds it where the kind has one.
    keyed: Option<(Kind, Key)>,
    generation: u32,
}

impl Reservation {
    /// The addresses that hold it by command 3.
    pub fn holders(&self) -> &[Mac] {
        &self.holders
    }

    /// The registered clients.
    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    /// The kind of the keyed reservation, and the key that holds it (0: all that are registered).
    pub fn keyed(&self) -> Option<(Kind, Key)> {
        self.keyed
    }

    /// True if no client has reserved or registered anything.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.registrations.is_empty()
    }

    /// True if it permits this use.
    pub fn permits(&self, client: Mac, wanted: Use) -> bool {
        let by_mac = self.holders.is_empty() || self.holders.contains(&client);
        let by_key = match self.keyed {
            None => true,
            Some((kind, _)) if kind.lets_all_read() && wanted == Use::Read => true,
            Some((kind, _)) => {
                let key = self.key_of(client);
                match kind {
                    Kind::HolderOnly | Kind::HolderWrites => key == self.holder(),
                    _ => key.is_some(),
                }
            }
        };
        by_mac && by_key
    }

    /// Sets the holders by command 3; none releases it.
    ///
    /// # Errors
    /// Another client holds a reservation, and the request does not `force`.
    pub fn set(&mut self, client: Mac, holders: Vec<Mac>, force: bool) -> Result<(), Conflict> {
        if !force && !self.permits(client, Use::Write) || holders.len() > MAX_MACS {
            return Err(Conflict);
        }
        self.holders = holders;
        Ok(())
    }

    /// Carries out a keyed request.
    ///
    /// # Errors
    /// Another client's reservation forbids it, or the key is not registered.
    pub fn command(&mut self, client: Mac, request: &Keyed) -> Result<(), Conflict> {
        let before = self.clone();
        let outcome = self.try_command(client, request);
        if outcome.is_err() {
            *self = before;
        }
        outcome
    }

    fn try_command(&mut self, client: Mac, request: &Keyed) -> Result<(), Conflict> {
        match *request {
            Keyed::Stat => Ok(()),
            Keyed::Register(key, ref macs) => self.register(key, macs),
            Keyed::Set(kind, key) if self.permits(client, Use::Write) => self.reserve(kind, key),
            Keyed::Set(..) => Err(Conflict),
            Keyed::Replace { keep: true, target, key, .. } => self.rename(target, key),
            Keyed::Replace { kind, target, key, .. } => self.preempt(kind, target, key),
            Keyed::Reset => {
                *self = Reservation { generation: self.generation, ..Reservation::default() };
                Ok(())
            }
        }
    }

    /// The state, as answers report it.
    pub fn state(&self) -> KeyedState {
        KeyedState {
            kind: self.keyed.map_or(0, |(kind, _)| kind as u8),
            generation: self.generation,
            holder: self.keyed.map_or(0, |(_, key)| key),
            keys: self.registrations.iter().map(|it| it.key).collect(),
        }
    }

    /// The same state from its parts, for a host that kept them. What does not fit together is
    /// dropped.
    pub fn restored(
        holders: Vec<Mac>,
        registrations: Vec<Registration>,
        keyed: Option<(Kind, Key)>,
    ) -> Reservation {
        let mut restored = Reservation { holders, ..Reservation::default() };
        restored.holders.truncate(MAX_MACS);
        for Registration { key, macs } in registrations {
            // A registration that is refused was never accepted: nothing is lost.
            let _ = restored.register(key, &macs);
        }
        restored.keyed = keyed.filter(|(kind, key)| {
            !restored.registrations.is_empty()
                && (!kind.has_holder() || restored.find(*key).is_some())
        });
        restored
    }

    fn find(&mut self, key: Key) -> Option<&mut Registration> {
        self.registrations.iter_mut().find(|it| it.key == key)
    }

    fn key_of(&self, client: Mac) -> Option<Key> {
        let found = self.registrations.iter().find(|it| it.macs.contains(&client));
        found.map(|it| it.key)
    }

    fn holder(&self) -> Option<Key> {
        self.keyed.map(|(_, key)| key)
    }

    fn register(&mut self, key: Key, macs: &[Mac]) -> Result<(), Conflict> {
        for it in &mut self.registrations {
            it.macs.retain(|mac| !macs.contains(mac));
        }
        if key != 0 && !macs.is_empty() {
            match self.find(key) {
                Some(found) => found.macs.extend(macs),
                None => self.registrations.push(Registration { key, macs: macs.to_vec() }),
            }
        }
        self.prune();
        let total: usize = self.registrations.iter().map(|it| it.macs.len()).sum();
        if self.registrations.len() > MAX_KEYS || total > MAX_MACS {
            return Err(Conflict);
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn reserve(&mut self, kind: Kind, key: Key) -> Result<(), Conflict> {
        if key == 0 {
            self.keyed = None;
            return Ok(());
        }
        self.find(key).ok_or(Conflict)?;
        match self.keyed {
            None => {
                self.keyed = Some((kind, if kind.has_holder() { key } else { 0 }));
                Ok(())
            }
            Some((held, holder)) if held == kind && (holder == key || holder == 0) => Ok(()),
            Some(_) => Err(Conflict),
        }
    }

    fn rename(&mut self, target: Key, key: Key) -> Result<(), Conflict> {
        if target == key {
            return self.find(target).map(|_| ()).ok_or(Conflict);
        }
        if key == 0 || self.find(key).is_some() {
            return Err(Conflict);
        }
        self.find(target).ok_or(Conflict)?.key = key;
        if let Some((_, holder)) = &mut self.keyed
            && *holder == target
        {
            *holder = key;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// The client with `key` takes over what the one with `target` has. Target 0 means all others,
    /// where all that are registered hold the reservation.
    fn preempt(&mut self, kind: Kind, target: Key, key: Key) -> Result<(), Conflict> {
        self.find(key).ok_or(Conflict)?;
        let takes_over = match self.keyed {
            Some((held, holder)) if held.has_holder() => holder == target,
            _ => target == 0,
        };
        if target == 0 {
            if self.keyed.is_some_and(|(held, _)| held.has_holder()) {
                return Err(Conflict);
            }
            self.registrations.retain(|it| it.key == key);
        } else {
            self.find(target).ok_or(Conflict)?;
            self.registrations.retain(|it| it.key != target || it.key == key);
        }
        if takes_over {
            self.keyed = Some((kind, if kind.has_holder() { key } else { 0 }));
        }
        self.prune();
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// Drops registrations without addresses, and a reservation that nobody can hold any more.
    fn prune(&mut self) {
        self.registrations.retain(|it| !it.macs.is_empty());
        let held = match self.keyed {
            Some((kind, key)) if kind.has_holder() => self.find(key).is_some(),
            _ => !self.registrations.is_empty(),
        };
        if !held {
            self.keyed = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);
    const C: Mac = Mac([2, 0, 0, 0, 0, 0xc]);

    fn mac(number: usize) -> Mac {
        let [.., high, low] = number.to_be_bytes();
        Mac([2, 1, 0, 0, high, low])
    }

    #[test]
    fn an_edit_that_fails_leaves_the_list_as_it_was() {
        let mut masks = Masks::new([A]);
        let edits = [Edit::Add(B), Edit::Remove(A), Edit::Unknown(9)];
        assert_eq!(masks.edit(&edits), Err((MaskFault::Directive, 2)));
        assert_eq!(masks.list(), [A]);
        assert_eq!(masks.edit(&edits[..2]), Ok(()));
        assert_eq!(masks.list(), [B]);
        assert!(masks.admits(B) && !masks.admits(A));
        assert_eq!(masks.edit(&[Edit::Add(Mac::BROADCAST)]), Err((MaskFault::Unspecified, 0)));
    }

    #[test]
    fn a_mask_list_has_a_limit() {
        for (count, expected) in [
            (MAX_MACS - 1, Ok(())),
            (MAX_MACS, Ok(())),
            (MAX_MACS + 1, Err((MaskFault::Full, MAX_MACS))),
        ] {
            let edits: Vec<Edit> = (0..count).map(|it| Edit::Add(mac(it))).collect();
            assert_eq!(Masks::default().edit(&edits), expected, "{count}");
        }
        let mut full = Masks::new((0..MAX_MACS).map(mac));
        assert_eq!(full.edit(&[Edit::Add(mac(0))]), Ok(()), "there already");
        assert_eq!(full.edit(&[Edit::Remove(mac(0)), Edit::Add(A)]), Ok(()));
    }

    #[test]
    fn a_reservation_by_address_keeps_others_out_until_forced() {
        let mut reservation = Reservation::default();
        assert!(reservation.permits(A, Use::Write));
        assert_eq!(reservation.set(A, vec![A, B], false), Ok(()));
        assert!(reservation.permits(B, Use::Write) && !reservation.permits(C, Use::Read));
        assert_eq!(reservation.set(C, vec![C], false), Err(Conflict));
        assert_eq!(reservation.set(C, vec![C], true), Ok(()));
        assert_eq!(reservation.set(C, vec![], false), Ok(()));
        assert!(reservation.permits(A, Use::Write) && reservation.is_empty());
        let many = |count| (0..count).map(mac).collect::<Vec<_>>();
        assert_eq!(reservation.clone().set(A, many(MAX_MACS + 1), true), Err(Conflict));
        assert_eq!(reservation.clone().set(A, many(MAX_MACS), true), Ok(()));
        assert_eq!(reservation.clone().set(A, many(MAX_MACS - 1), true), Ok(()));
    }

    /// Client A holds, B is registered, C is not: who may read and write, kind by kind.
    #[test]
    fn kinds_differ_in_who_reads_and_writes() {
        let table = [
            (Kind::HolderOnly, "rw", "", ""),
            (Kind::HolderWrites, "rw", "r", "r"),
            (Kind::RegisteredOnly, "rw", "rw", ""),
            (Kind::RegisteredWrite, "rw", "rw", "r"),
            (Kind::GroupOnly, "rw", "rw", ""),
            (Kind::GroupWrites, "rw", "rw", "r"),
        ];
        for (kind, a, b, c) in table {
            let mut reservation = registered();
            assert_eq!(reservation.command(A, &Keyed::Set(kind, 1)), Ok(()));
            for (client, rights) in [(A, a), (B, b), (C, c)] {
                let may = |wanted| reservation.permits(client, wanted);
                assert_eq!(may(Use::Read), rights.contains('r'), "{kind:?} {client}");
                assert_eq!(may(Use::Write), rights.contains('w'), "{kind:?} {client}");
            }
            assert_eq!(Kind::of(kind as u8), Some(kind));
        }
        assert_eq!(Kind::of(6), None);
    }

    fn registered() -> Reservation {
        let mut reservation = Reservation::default();
        for (key, mac) in [(1, A), (2, B)] {
            assert_eq!(reservation.command(mac, &Keyed::Register(key, vec![mac])), Ok(()));
        }
        reservation
    }

    fn replace(kind: Kind, target: Key, key: Key) -> Keyed {
        Keyed::Replace { kind, keep: false, target, key }
    }

    #[test]
    fn a_survivor_takes_over_and_the_fenced_client_is_out() {
        let mut reservation = registered();
        assert_eq!(reservation.command(A, &Keyed::Set(Kind::RegisteredOnly, 1)), Ok(()));
        assert_eq!(reservation.command(B, &replace(Kind::RegisteredOnly, 1, 2)), Ok(()));
        assert_eq!(reservation.state().holder, 2);
        assert!(reservation.permits(B, Use::Write) && !reservation.permits(A, Use::Read));
        assert_eq!(reservation.command(B, &replace(Kind::HolderOnly, 1, 2)), Err(Conflict));
    }

    #[test]
    fn a_reservation_ends_with_the_registration_of_its_holder() {
        let mut reservation = registered();
        assert_eq!(reservation.command(A, &Keyed::Set(Kind::HolderOnly, 1)), Ok(()));
        assert_eq!(reservation.command(C, &Keyed::Set(Kind::HolderOnly, 2)), Err(Conflict));
        assert_eq!(reservation.command(A, &Keyed::Register(0, vec![A])), Ok(()));
        assert_eq!(reservation.keyed(), None);
        assert!(reservation.permits(C, Use::Write));
        let group = Keyed::Set(Kind::GroupWrites, 2);
        assert_eq!(reservation.command(B, &group), Ok(()));
        assert_eq!(reservation.command(B, &Keyed::Register(0, vec![B])), Ok(()));
        assert!(reservation.is_empty() && reservation.keyed().is_none());
        assert_eq!(reservation.state().generation, 4);
    }

    #[test]
    fn a_key_can_be_changed_and_set_needs_a_registered_one() {
        let mut reservation = registered();
        assert_eq!(reservation.command(A, &Keyed::Set(Kind::HolderOnly, 7)), Err(Conflict));
        assert_eq!(reservation.command(A, &Keyed::Set(Kind::HolderOnly, 1)), Ok(()));
        let kind = Kind::HolderOnly;
        let rename = |target, key| Keyed::Replace { kind, keep: true, target, key };
        assert_eq!(reservation.command(A, &rename(1, 2)), Err(Conflict), "the key of another");
        assert_eq!(reservation.command(A, &rename(9, 8)), Err(Conflict), "not registered");
        assert_eq!(reservation.command(A, &rename(1, 5)), Ok(()));
        assert_eq!((reservation.state().holder, reservation.state().keys), (5, vec![5, 2]));
        let (holders, keys) = (vec![], reservation.registrations().to_vec());
        let restored = Reservation::restored(holders, keys, reservation.keyed());
        assert_eq!(restored.keyed(), Some((kind, 5)));
        assert_eq!(reservation.command(B, &Keyed::Reset), Ok(()));
        assert!(reservation.is_empty());
    }

    #[test]
    fn registrations_have_a_limit() {
        for (keys, expected) in
            [(MAX_KEYS - 1, Ok(())), (MAX_KEYS, Ok(())), (MAX_KEYS + 1, Err(Conflict))]
        {
            let mut reservation = Reservation::default();
            let last = (1..=keys)
                .map(|it| reservation.command(A, &Keyed::Register(it as u64, vec![mac(it)])))
                .last();
            assert_eq!(last, Some(expected), "{keys}");
            assert!(reservation.registrations().len() <= MAX_KEYS);
        }
    }
}
