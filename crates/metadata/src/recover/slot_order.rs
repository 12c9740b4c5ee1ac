//! The slot of each disk: by signs, and by trying every order where there are none.

use crate::recover::rows::Agreement;

/// The most slots without signs that are tried in every order.
const MOST_OPEN: usize = 7;

/// For each slot and disk, the number of the slot's signs on that disk.
pub(super) type Votes = Vec<Vec<usize>>;

/// The disks by slot; `None` for a missing one.
pub(super) type Order = Vec<Option<usize>>;

/// The orders with the most evidence, all equal; the one nearest to the disks' own order first.
#[derive(Default)]
pub(super) struct SlotOrder {
    pub(super) orders: Vec<Order>,
    /// All other orders have less evidence: there were not too many to try.
    pub(super) is_all: bool,
    /// Signs that are in their places.
    pub(super) signs: usize,
    pub(super) agreement: Agreement,
}

/// Assigns the disks to slots by votes and by the agreement of redundancy.
pub(super) fn assignment(
    votes: &Votes,
    disks: usize,
    agrees: &dyn Fn(&Order) -> Agreement,
) -> SlotOrder {
    let slots = votes.len();
    let mut order: Order = vec![None; slots];
    let mut assigned = vec![false; disks];
    // Slots with only one possible disk, surest first.
    let mut sure: Vec<(usize, usize, usize)> =
        (0..slots).filter_map(|slot| only(votes, slot)).collect();
    sure.sort_by_key(|&(lead, ..)| std::cmp::Reverse(lead));
    for (_, slot, disk) in sure {
        if !assigned[disk] {
            order[slot] = Some(disk);
            assigned[disk] = true;
        }
    }
    let free: Vec<usize> = (0..slots).filter(|&slot| order[slot].is_none()).collect();
    let mut left: Vec<Option<usize>> =
        (0..disks).filter(|&disk| !assigned[disk]).map(Some).collect();
    left.resize(free.len(), None);
    let mut best = SlotOrder::default();
    let mut consider = |left: &[Option<usize>]| {
        free.iter().zip(left).for_each(|(&slot, &disk)| order[slot] = disk);
        let agreement = agrees(&order);
        let sits = |(slot, disk): (usize, &Option<usize>)| disk.map_or(0, |disk| votes[slot][disk]);
        let signs = order.iter().enumerate().map(sits).sum::<usize>();
        let explains = |signs: usize, agreement: Agreement| 2 * signs + agreement.agree;
        let (new, old) = (explains(signs, agreement), explains(best.signs, best.agreement));
        if best.orders.is_empty() || new > old {
            best = SlotOrder { orders: vec![order.clone()], is_all: false, signs, agreement };
        } else if new == old {
            best.orders.push(order.clone());
        }
    };
    match free.len() <= MOST_OPEN {
        true => permutations(&mut left, 0, &mut consider),
        false => consider(&left),
    }
    best.is_all = free.len() <= MOST_OPEN;
    best
}

/// Every order of this many disks in this many slots, if there are few. A sign on a missing disk
/// gives no vote, and only recovered contents can decide then.
pub(super) fn all(disks: usize, slots: usize) -> Option<Vec<Order>> {
    let mut orders = Vec::new();
    let mut left: Order = (0..disks).map(Some).collect();
    left.resize(slots, None);
    if slots <= MOST_OPEN {
        permutations(&mut left, 0, &mut |order| orders.push(order.to_vec()));
    }
    (slots <= MOST_OPEN).then_some(orders)
}

/// The lead of the disk with most of a slot's signs over the next one.
fn only(votes: &Votes, slot: usize) -> Option<(usize, usize, usize)> {
    let mut ranked: Vec<(usize, usize)> =
        votes[slot].iter().enumerate().map(|(disk, &votes)| (votes, disk)).collect();
    ranked.sort_by_key(|&(votes, _)| std::cmp::Reverse(votes));
    let second = ranked.get(1).map_or(0, |&(votes, _)| votes);
    let &(first, disk) = ranked.first()?;
    (first > second).then_some((first - second, slot, disk))
}

/// Every order of these from `at` on, in lexicographic order; missing disks are all equal.
fn permutations(of: &mut [Option<usize>], at: usize, consider: &mut dyn FnMut(&[Option<usize>])) {
    if at == of.len() {
        return consider(of);
    }
    for next in at..of.len() {
        if of[next].is_none() && of[at..next].contains(&None) {
            continue;
        }
        of[at..=next].rotate_right(1);
        permutations(of, at + 1, consider);
        of[at..=next].rotate_left(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &Order) -> Agreement {
        Agreement::default()
    }

    #[test]
    fn every_order_is_tried_once_nearest_first() {
        let mut seen = Vec::new();
        permutations(&mut [Some(0), Some(1), None, None], 0, &mut |order| {
            seen.push(order.to_vec())
        });
        assert_eq!(seen.len(), 12);
        assert_eq!(seen[0], [Some(0), Some(1), None, None]);
        let mut sorted = seen.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), 12);
    }

    #[test]
    fn signs_place_disks_and_the_rest_keeps_its_order() {
        let votes = vec![vec![0, 0, 3, 0], vec![0; 4], vec![0, 2, 1, 0], vec![0; 4]];
        let slot_order = assignment(&votes, 4, &nothing);
        assert_eq!(slot_order.orders[0], [Some(2), Some(0), Some(1), Some(3)]);
        assert_eq!((slot_order.signs, slot_order.orders.len()), (5, 2));
    }

    #[test]
    fn redundancy_decides_between_orders() {
        let right = [Some(1), Some(2), Some(0)];
        let agrees = |order: &Order| {
            let agree = usize::from(order[..] == right) * 9;
            Agreement { agree, tried: 9 }
        };
        let slot_order = assignment(&vec![vec![0; 3]; 3], 3, &agrees);
        assert_eq!(slot_order.orders, [right]);
        assert!(slot_order.is_all);
    }

    #[test]
    fn too_many_orders_are_not_tried() {
        let slot_order = assignment(&vec![vec![0; 8]; 8], 8, &nothing);
        assert_eq!((slot_order.orders.len(), slot_order.is_all), (1, false));
    }
}
