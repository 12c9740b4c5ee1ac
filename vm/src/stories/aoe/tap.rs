//! A wire between a guest and the server, recorded.

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use super::relay::{Deeds, Fate, Relay};
use crate::capture::Capture;
use crate::failure::{Failure, Result, ensure};
use crate::kernel::Cable;
use crate::stories::Stage;

/// The least answers that a story's client gets, which a recording of the wire must show.
const LEAST_ANSWERS: usize = 500;

/// A cable between a guest and the host, and a recording of it; it goes with this value.
pub(super) struct Tap {
    name: String,
    mtu: u32,
    /// The server's interface: the tap, or the end of a cable behind a bridge.
    pub(super) served: String,
    capture: Option<Capture>,
    /// The guest's, if it has to have a certain one.
    address: Option<String>,
    relay: Option<Relay>,
}

/// Addresses of both ends of a relay.
const CLIENT: &str = "02:00:00:00:00:01";
const SERVER: &str = "02:00:00:00:00:02";

impl Tap {
    pub(super) fn new(stage: &Stage<'_>, mtu: u32) -> Result<Tap> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ppt{}x{number}", std::process::id());
        let mut tap =
            Tap { served: name.clone(), name, mtu, capture: None, address: None, relay: None };
        ip(&["tuntap", "add", &tap.name, "mode", "tap"])?;
        tap.set(&["mtu", &mtu.to_string(), "up"])?;
        let file = stage.path(&format!("{}.pcapng", tap.name));
        tap.capture = Some(Capture::start(&tap.name, file)?);
        Ok(tap)
    }

    fn set(&self, words: &[&str]) -> Result {
        ip(&[&["link", "set", &self.name], words].concat())
    }

    /// With a bridge and a cable between the tap and the server. The cable can be pulled: a tap
    /// that goes down is a broken device for user-mode Linux, not a broken wire.
    pub(super) fn with_cable(mut self) -> Result<Tap> {
        let [bridge, inner, outer] = ["b", "i", "s"].map(|end| format!("{}{end}", self.name));
        let mtu = self.mtu.to_string();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&[
            "link", "add", &outer, "mtu", &mtu, "type", "veth", "peer", "name", &inner, "mtu", &mtu,
        ])?;
        for port in [&self.name, &inner] {
            ip(&["link", "set", port, "master", &bridge])?;
        }
        for each in [&bridge, &inner, &outer] {
            ip(&["link", "set", each, "up"])?;
        }
        self.served = outer;
        Ok(self)
    }

    /// Changes what a frame carries at the most.
    pub(super) fn set_mtu(&self, mtu: u32) -> Result {
        self.set(&["mtu", &mtu.to_string()])
    }

    /// With a relay between the tap and the server. Each end of it has the address of who is beyond
    /// the other, so that neither sees it.
    pub(super) fn with_relay(mut self, fate: Fate) -> Result<Tap> {
        let [inner, outer] = ["i", "s"].map(|end| format!("{}{end}", self.name));
        let mtu = self.mtu.to_string();
        ip(&[
            "link", "add", &outer, "mtu", &mtu, "type", "veth", "peer", "name", &inner, "mtu", &mtu,
        ])?;
        let beyond = [(&self.name, SERVER), (&outer, SERVER), (&inner, CLIENT)];
        for (end, address) in beyond {
            ip(&["link", "set", end, "address", address])?;
            ip(&["link", "set", end, "up"])?;
        }
        self.address = Some(CLIENT.to_owned());
        self.relay = Some(Relay::start(&self.name, &inner, fate)?);
        self.served = outer;
        Ok(self)
    }

    /// What the relay has done, which ends.
    pub(super) fn end_relay(&mut self) -> Result<Deeds> {
        let relay = self.relay.take().ok_or_else(|| Failure::new("there is no relay"))?;
        relay.end()
    }

    /// Pulls the cable, or puts it back.
    pub(super) fn plug(&self, state: &str) -> Result {
        ip(&["link", "set", &self.served, state])
    }

    /// The guest's end.
    pub(super) fn cable(&self) -> Cable {
        Cable { interface: self.name.clone(), mtu: self.mtu, address: self.address.clone() }
    }

    /// The same as [`Tap::verify`]; returns how often a target has announced itself.
    pub(super) fn announcements(&mut self) -> Result<usize> {
        self.capture.take().map_or(Ok(0), |capture| capture.verify(LEAST_ANSWERS))
    }

    /// The wire had no frame that an independent decoder does not understand.
    pub(super) fn verify(&mut self) -> Result {
        self.announcements().map(drop)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.relay = None;
        for name in [&self.name, &self.served, &format!("{}b", self.name)] {
            let _ = ip(&["link", "del", name]);
        }
    }
}

pub(super) fn ip(words: &[&str]) -> Result {
    let done = Command::new("ip").args(words).output()?;
    let why = || format!("ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    ensure(done.status.success(), why)
}
