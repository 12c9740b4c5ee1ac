//! Spares that several arrays share: one that needs a spare gets it from another of its group.

/// An array of a group, as the choice sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its name or UUID.
    pub array: String,
    /// Its group; arrays without one share nothing.
    pub group: String,
    /// True if a slot has no member, and nothing fills it.
    pub needs_spare: bool,
    /// True if every slot has a member in sync: only then it gives a spare away.
    pub is_whole: bool,
    /// The smallest size of a member that it can use, in bytes.
    pub least_bytes: u64,
    /// Its spares: path and size in bytes.
    pub spares: Vec<(String, u64)>,
}

/// A spare that changes its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Path of the spare.
    pub spare: String,
    /// The array that gives it.
    pub from: String,
    /// The array that gets it.
    pub to: String,
}

/// Chooses the next move: the smallest spare that is large enough, from the array with the most.
pub fn next_move(arrays: &[Standing]) -> Option<Move> {
    let needy = arrays.iter().filter(|it| it.needs_spare && it.spares.is_empty());
    needy.filter(|to| !to.group.is_empty()).find_map(|to| {
        let givers = arrays.iter().filter(|it| it.group == to.group && it.array != to.array);
        let offers = givers.filter(|it| it.is_whole).flat_map(|from| {
            let spares = from.spares.iter().filter(|(_, bytes)| *bytes >= to.least_bytes);
            spares.map(move |(path, bytes)| (usize::MAX - from.spares.len(), *bytes, path, from))
        });
        let (.., spare, from) = offers.min_by_key(|&(rank, bytes, path, _)| (rank, bytes, path))?;
        let (from, to) = (from.array.clone(), to.array.clone());
        Some(Move { spare: spare.clone(), from, to })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(name: &str, needs_spare: bool, spares: &[(&str, u64)]) -> Standing {
        Standing {
            array: name.into(),
            group: "shelf".into(),
            needs_spare,
            is_whole: !needs_spare,
            least_bytes: 100,
            spares: spares.iter().map(|&(path, bytes)| (path.into(), bytes)).collect(),
        }
    }

    #[test]
    fn the_smallest_sufficient_spare_moves_from_the_array_with_the_most() {
        let rich = array("rich", false, &[("big", 300), ("fits", 100), ("small", 99)]);
        let poor = array("poor", false, &[("only", 100)]);
        let needy = array("needy", true, &[]);
        let moved = next_move(&[poor.clone(), rich, needy.clone()]).unwrap();
        assert_eq!((&*moved.spare, &*moved.from, &*moved.to), ("fits", "rich", "needy"));
        assert_eq!(next_move(&[poor, needy.clone()]).unwrap().spare, "only");
        let late = array("late", false, &[("small", 99)]);
        assert_eq!(next_move(&[late, needy]), None);
    }

    #[test]
    fn nothing_moves_between_groups_or_from_an_array_in_need() {
        let needy = array("needy", true, &[]);
        let giver = array("giver", false, &[("it", 100)]);
        let other = Standing { group: "other".into(), ..giver.clone() };
        assert_eq!(next_move(&[other, needy.clone()]), None);
        let degraded = Standing { is_whole: false, ..giver.clone() };
        assert_eq!(next_move(&[degraded, needy.clone()]), None);
        let own = array("own", true, &[("it", 100)]);
        assert_eq!(next_move(&[own, giver.clone()]), None, "it fills its slot from its own");
        let alone = |it: Standing| Standing { group: String::new(), ..it };
        assert_eq!(next_move(&[alone(giver), alone(needy)]), None);
    }
}
