//! Does the redundancy agree? Rows of members, looked at under a hypothesis.

use layout::{Family, Geometry, Owner, Slot, Stripe};
use parity::{Kernel, Term};

use crate::recover::pages::Pages;

/// Rows that are not all zeros: this many are enough evidence.
const MOST_ROWS: usize = 48;
/// Places that are looked at for them, evenly over the members, and at their beginning.
const PLACES: u64 = 192;
const FIRST_PLACES: u64 = 32;
const STEP: u64 = 4096;
/// Bytes of a row that are compared.
const ROW_BYTES: usize = 512;

/// The same bytes of every disk.
pub(super) struct Row {
    /// From the beginning of the members' data.
    at: u64,
    /// By disk; `None` if it is unreadable there.
    bytes: Vec<Option<Vec<u8>>>,
}

/// The number of consistent rows, and of rows that could show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Agreement {
    pub(super) agree: usize,
    pub(super) tried: usize,
}

impl Agreement {
    pub(super) fn count(&mut self, agrees: bool) {
        self.tried += 1;
        self.agree += usize::from(agrees);
    }
}

/// Rows of members whose data begins here and has this size.
pub(super) async fn rows(pages: &Pages<'_>, data_offset: u64, member_bytes: u64) -> Vec<Row> {
    let spread = (0..PLACES).map(|place| member_bytes / PLACES * place / STEP * STEP);
    let first = (0..FIRST_PLACES).map(|place| place * STEP);
    let mut places: Vec<u64> = spread.chain(first).filter(|at| at + STEP <= member_bytes).collect();
    places.sort_unstable();
    places.dedup();
    let mut rows = Vec::new();
    for at in places {
        let mut bytes = Vec::new();
        for disk in 0..pages.disks().len() {
            bytes.push(pages.bytes(disk, data_offset + at, ROW_BYTES).await);
        }
        if bytes.iter().flatten().any(|bytes| bytes.iter().any(|&byte| byte != 0)) {
            rows.push(Row { at, bytes });
        }
    }
    let keep = rows.len().div_ceil(MOST_ROWS).max(1);
    rows.into_iter().step_by(keep).collect()
}

/// Do the rows agree with their parity, if the disks sit so? Ends early where most do not: this
/// order is not it.
pub(super) fn parity(
    geometry: &Geometry,
    order: &[Option<usize>],
    rows: &[Row],
    kernel: Kernel,
) -> Agreement {
    const HOPELESS: usize = 6;
    let mut agreement = Agreement::default();
    if geometry.family() != Family::Parity {
        return agreement;
    }
    for row in rows {
        let Some(agrees) = agrees(geometry, order, row, kernel) else { continue };
        agreement.count(agrees);
        if agreement.tried - agreement.agree >= HOPELESS && agreement.agree * 2 < agreement.tried {
            break;
        }
    }
    agreement
}

/// `None` if a member of the row is not there.
fn agrees(geometry: &Geometry, order: &[Option<usize>], row: &Row, kernel: Kernel) -> Option<bool> {
    let stripe = Stripe(row.at / geometry.chunk_bytes());
    if stripe.0 >= geometry.stripes() {
        return None;
    }
    let map = geometry.stripe(stripe);
    let of = |Slot(slot): Slot| row.bytes[order[usize::from(slot)]?].as_deref();
    let term = |index: usize| Some((map.exponent(index), of(map.data(index))?));
    let terms: Vec<Term<'_>> = (0..map.data_count()).map(term).collect::<Option<_>>()?;
    let p = of(map.p())?;
    Some(match map.q() {
        Some(q) => kernel.check_pq(&terms, p, of(q)?),
        None => {
            let data: Vec<&[u8]> = terms.iter().map(|(_, bytes)| *bytes).collect();
            kernel.check_p(&data, p)
        }
    })
}

/// Do the copies agree, if the disks sit so?
pub(super) async fn copies(
    geometry: &Geometry,
    order: &[Option<usize>],
    rows: &[Row],
    (pages, data_offset): (&Pages<'_>, u64),
) -> Agreement {
    let mut agreement = Agreement::default();
    if geometry.family() != Family::Mirror {
        return agreement;
    }
    // Members' parts of a row are at different offsets.
    for row in rows {
        for slot in 0..geometry.slots() {
            let Owner::Data { array_offset, .. } = geometry.owner(Slot(slot as u8), row.at) else {
                continue;
            };
            let mut found: Vec<Vec<u8>> = Vec::new();
            for copy in geometry.places(array_offset).copies() {
                let Some(disk) = order[copy.slot.index()] else { continue };
                found.extend(pages.bytes(disk, data_offset + copy.member_offset, ROW_BYTES).await);
            }
            let zeros = found.iter().all(|bytes| bytes.iter().all(|&byte| byte == 0));
            if found.len() > 1 && !zeros {
                agreement.count(found.iter().all(|bytes| *bytes == found[0]));
            }
        }
    }
    agreement
}
