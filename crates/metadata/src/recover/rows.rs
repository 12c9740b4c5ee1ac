//! Agreement of redundancy: compares rows of members under a hypothesis.

use layout::{Family, Geometry, Owner, Slot, Stripe};
use parity::{Kernel, Term};

use crate::recover::pages::Pages;

/// This many rows that are not all zeros are enough evidence.
const MOST_ROWS: usize = 48;
/// Offsets to try, evenly over the members, and at their start.
const PLACES: u64 = 192;
const FIRST_PLACES: u64 = 32;
const STEP: u64 = 4096;
/// Bytes to compare per row.
const ROW_BYTES: usize = 512;

/// The same range of every disk.
pub(super) struct Row {
    /// From the beginning of the members' data.
    at: u64,
    /// By disk; `None` where unreadable.
    bytes: Vec<Option<Vec<u8>>>,
}

/// The number of rows that agreed, and of rows compared.
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

/// Rows of members with this data offset and size.
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

/// Compares the rows with their parity for this order of disks. Stops early if most disagree: the
/// order is wrong.
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

/// `None` if a member of the row is missing.
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

/// Compares the copies for this order of disks.
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
    // The contents of a row are at other offsets on other members.
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
