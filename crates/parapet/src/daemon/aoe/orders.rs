//! The control commands on an array's AoE export: `online`, `offline`, `shelf`, `mask`,
//! `reservations`.

use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Mac};
use net::aoe::target::Change;
use net::aoe::target::access::Reservation;
use net::aoe::{Address, LunState};

use super::super::{Daemon, Served};
use super::state::with_lun;
use super::{AoePlace, ExportEntry};
use crate::api::{AoeView, Order};
use crate::failure::{Failure, Id, Result};

/// Pause before a change is tried again while a client's change is being kept.
const CHANGE_INTERVAL: Duration = Duration::from_millis(1);

impl Daemon {
    /// Serves the array as a LUN.
    pub(in crate::daemon) async fn order_online(
        self: &Rc<Self>,
        served: &Rc<Served>,
        order: &Order,
    ) -> Result<String> {
        let entry = self.export_entry(served).await?;
        let place = order.aoe.as_deref().map(str::parse::<AoePlace>).transpose().map_err(usage)?;
        self.online(served, &entry, place.as_ref()).await?;
        Ok(format!("{}: {}", served.name(), sentence(&view(&entry))))
    }

    /// Serves the array's LUN no more.
    pub(in crate::daemon) async fn order_offline(&self, served: &Rc<Served>) -> Result<String> {
        let (name, entry) = (served.name(), self.export_entry(served).await?);
        let Some(address) = entry.served.take() else {
            let message = format!("{name} is not online");
            let action = format!("parapet online {name} SHELF.SLOT@INTERFACE");
            return Err(Failure::new(Id::WrongState, message, action));
        };
        let target = self.aoe.target.borrow().clone();
        if let Some(target) = target {
            target.offline(address).await;
        }
        let mut kept = entry.kept.borrow().clone();
        kept.online = false;
        self.keep_export(served, &entry, kept).await?;
        Ok(format!("{name}: AoE {address} is offline"))
    }

    /// Shows the address, or sets it.
    pub(in crate::daemon) async fn order_shelf(
        &self,
        served: &Rc<Served>,
        order: &Order,
    ) -> Result<String> {
        let (name, entry) = (served.name(), self.export_entry(served).await?);
        if let Some(text) = &order.aoe {
            let address: Address = text.parse().map_err(|why: &str| usage(why.into()))?;
            if let Some(present) = entry.served_at() {
                let message = format!("{name} is online as AoE {present}");
                let action = format!("parapet offline {name} first");
                return Err(Failure::new(Id::WrongState, message, action));
            }
            self.refuse_taken(served, address)?;
            let mut kept = entry.kept.borrow().clone();
            kept.address = Some((address.shelf, address.slot));
            self.keep_export(served, &entry, kept).await?;
        }
        Ok(format!("{name}: {}", sentence(&view(&entry))))
    }

    /// Shows the masks, or adds and removes some.
    pub(in crate::daemon) async fn order_mask(
        &self,
        served: &Rc<Served>,
        order: &Order,
    ) -> Result<String> {
        let (name, entry) = (served.name(), self.export_entry(served).await?);
        let mut edits = Vec::new();
        for text in &order.masks {
            let wrong = || usage(format!("{text}: write +MAC to add, or -MAC to remove"));
            let mac = text.get(1..).and_then(|text| text.parse::<Mac>().ok()).ok_or_else(wrong)?;
            edits.push(match text.as_bytes()[0] {
                b'+' if mac.is_group() => return Err(usage(format!("{mac} is a group's address"))),
                b'+' => net::aoe::wire::access::Edit::Add(mac),
                b'-' => net::aoe::wire::access::Edit::Remove(mac),
                _ => return Err(wrong()),
            });
        }
        if !edits.is_empty() {
            let change = |state: &mut LunState| {
                state.masks.edit(&edits).map_err(|(_, index)| {
                    let message =
                        format!("{name}: {} did not fit: the list is full", order.masks[index]);
                    Failure::new(
                        Id::WrongState,
                        message,
                        "remove others first: parapet mask NAME --remove MAC",
                    )
                })
            };
            self.change_lun(served, &entry, change).await?;
        }
        let masks = view(&entry).masks;
        Ok(match &masks[..] {
            [] => format!("{name}: no mask: AoE answers every client"),
            masks => format!("{name}: AoE answers only {}", masks.join(" ")),
        })
    }

    /// Shows the reservation, or ends it.
    pub(in crate::daemon) async fn order_reservations(
        &self,
        served: &Rc<Served>,
        order: &Order,
    ) -> Result<String> {
        let (name, entry) = (served.name(), self.export_entry(served).await?);
        if order.clear {
            let change = |state: &mut LunState| {
                state.reservation = Reservation::default();
                Ok(())
            };
            self.change_lun(served, &entry, change).await?;
        }
        let reserved = view(&entry).reserved_by;
        Ok(match &reserved[..] {
            [] => format!("{name}: not reserved"),
            clients => format!("{name}: reserved by {}", clients.join(" ")),
        })
    }

    /// Changes what clients see, between the changes that clients make themselves.
    async fn change_lun(
        &self,
        served: &Rc<Served>,
        entry: &Rc<ExportEntry>,
        change: impl Fn(&mut LunState) -> Result<()>,
    ) -> Result<()> {
        let target = self.aoe.target.borrow().clone();
        let lun = target.zip(entry.served_at()).and_then(|(target, at)| target.lun(at));
        let clock = self.spawner.clock();
        let turn = loop {
            let Some(lun) = &lun else { break None };
            match Change::begin(lun) {
                Some(turn) => break Some(turn),
                None => clock.sleep_until(clock.now() + CHANGE_INTERVAL).await,
            }
        };
        let mut state = entry.lun_state();
        change(&mut state)?;
        let kept = with_lun(&entry.kept.borrow(), &state);
        self.keep_export(served, entry, kept).await?;
        if let Some(lun) = lun {
            lun.set_state(state);
        }
        drop(turn);
        Ok(())
    }

    /// Returns the AoE export of an array, once it was used.
    pub(in crate::daemon) fn aoe_view(&self, served: &Served) -> Option<AoeView> {
        self.aoe.entry(served.uuid()).map(|entry| view(&entry))
    }
}

fn view(entry: &ExportEntry) -> AoeView {
    let state = entry.lun_state();
    let macs = |macs: &[Mac]| macs.iter().map(ToString::to_string).collect::<Vec<_>>();
    let keyed = state.reservation.registrations().iter();
    let keyed = keyed.flat_map(|it| it.macs.iter()).map(ToString::to_string);
    let is_keyed = state.reservation.keyed().is_some();
    let mut reserved_by = macs(state.reservation.holders());
    reserved_by.extend(keyed.filter(|_| is_keyed));
    AoeView {
        address: entry.served_at().or_else(|| entry.address()).map(|it| it.to_string()),
        interfaces: entry.interfaces.borrow().clone(),
        online: entry.served_at().is_some(),
        config: String::from_utf8_lossy(&state.config).into_owned(),
        masks: macs(state.masks.list()),
        reserved_by,
    }
}

/// Describes an export.
fn sentence(view: &AoeView) -> String {
    let Some(address) = &view.address else { return "no AoE address".into() };
    match view.online {
        true => format!("AoE {address} is online on {}", view.interfaces.join(", ")),
        false => format!("AoE {address} is offline"),
    }
}

fn usage(message: String) -> Failure {
    Failure::new(Id::Usage, message, "see: parapet help online, parapet help mask")
}
