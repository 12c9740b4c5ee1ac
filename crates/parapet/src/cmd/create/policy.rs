//! Chooses the consistency policy of a new array, and its bitmap.
//!
//! Owns the table of valid combinations:
//!
//! ```text
//!              linear, 0   1, 10      4, 6, 3.5   5          bitmap
//!   resync     -           yes        yes         yes        none
//!   bitmap     -           usual      yes         yes        needed
//!   intent     -           -          usual       usual      wanted
//!   ppl        -           -          -           yes        none: md excludes it; our own bits
//!   journal    -           -          yes         yes        wanted
//! ```

use layout::Level;
use metadata::create::BitmapChunk;

use super::Bitmap;
use crate::api::Consistency;
use crate::failure::{Failure, Id, Result};

/// The choice for a new array.
pub(super) type Choice = (Option<Consistency>, Option<BitmapChunk>);

/// Chooses from the user's flags.
///
/// # Errors
/// If the flags contradict each other; the error gives the reason.
pub(super) fn choose(
    level: Level,
    asked: Option<Consistency>,
    bitmap: Option<Bitmap>,
) -> Result<Choice> {
    let fitting = bitmap.map_or(Some(BitmapChunk::Fitting), |bitmap| bitmap.0);
    let policy = match (level, asked) {
        (Level::Linear | Level::Raid0, None) => return Ok((None, fitting)),
        (Level::Linear | Level::Raid0, Some(policy)) => {
            let why = "there is no redundancy that could disagree with the data";
            return Err(senseless(level, policy, why, "leave --consistency out"));
        }
        (Level::Raid1 | Level::Raid10, None) => match fitting {
            Some(_) => Consistency::Bitmap,
            None => Consistency::Resync,
        },
        (_, None) => Consistency::Intent,
        (_, Some(policy)) => policy,
    };
    let mirror = matches!(level, Level::Raid1 | Level::Raid10);
    match policy {
        Consistency::Intent | Consistency::Journal | Consistency::Ppl if mirror => {
            let why =
                "copies have no write hole: after a crash one of them is copied to the others";
            Err(senseless(level, policy, why, "choose bitmap, or resync"))
        }
        Consistency::Ppl if level != Level::Raid5 => {
            let why = "md's partial parity log is for RAID 5 only";
            Err(senseless(level, policy, why, "choose intent: it does more"))
        }
        Consistency::Ppl | Consistency::Resync
            if bitmap.is_some_and(|bitmap| bitmap.0.is_some()) =>
        {
            let why = match policy {
                Consistency::Ppl => "md's partial parity log excludes a write-intent bitmap",
                _ => "a write-intent bitmap says what is to be synced: that is policy bitmap",
            };
            Err(senseless(level, policy, why, "leave --bitmap out, or choose another policy"))
        }
        Consistency::Ppl | Consistency::Resync => Ok((Some(policy), None)),
        Consistency::Bitmap if fitting.is_none() => {
            let why = "it is what the write-intent bitmap is for";
            Err(senseless(level, policy, why, "leave --bitmap off out, or choose resync"))
        }
        Consistency::Bitmap | Consistency::Intent | Consistency::Journal => {
            Ok((Some(policy), fitting))
        }
    }
}

fn senseless(level: Level, policy: Consistency, why: &str, action: &str) -> Failure {
    let message = format!("{level} with --consistency {}: {why}", policy.word());
    Failure::new(Id::Shape, message, action)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Option<Bitmap> = Some(Bitmap(None));
    const AUTO: Option<Bitmap> = Some(Bitmap(Some(BitmapChunk::Fitting)));

    fn chosen(
        level: Level,
        asked: Option<Consistency>,
        bitmap: Option<Bitmap>,
    ) -> (Option<Consistency>, bool) {
        let (policy, bitmap) = choose(level, asked, bitmap).unwrap();
        (policy, bitmap.is_some())
    }

    #[test]
    fn levels_with_parity_get_the_intent_log_and_copies_the_bitmap() {
        for level in [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid35] {
            assert_eq!(chosen(level, None, None), (Some(Consistency::Intent), true));
            assert_eq!(chosen(level, None, OFF), (Some(Consistency::Intent), false));
            let resync = Some(Consistency::Resync);
            assert_eq!(chosen(level, resync, None), (resync, false));
        }
        let ppl = Some(Consistency::Ppl);
        assert_eq!(chosen(Level::Raid5, ppl, None), (ppl, false));
        for level in [Level::Raid1, Level::Raid10] {
            assert_eq!(chosen(level, None, None), (Some(Consistency::Bitmap), true));
            assert_eq!(chosen(level, None, OFF), (Some(Consistency::Resync), false));
        }
        assert_eq!(chosen(Level::Raid0, None, None).0, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        use Consistency::{Bitmap as Marks, Intent, Journal, Ppl, Resync};
        for (level, asked, bitmap, why) in [
            (Level::Raid0, Resync, None, "no redundancy"),
            (Level::Linear, Intent, None, "no redundancy"),
            (Level::Raid1, Intent, None, "copies have no write hole"),
            (Level::Raid10, Journal, None, "copies have no write hole"),
            (Level::Raid1, Ppl, None, "copies have no write hole"),
            (Level::Raid6, Ppl, None, "RAID 5 only"),
            (Level::Raid4, Ppl, None, "RAID 5 only"),
            (Level::Raid5, Ppl, AUTO, "excludes a write-intent bitmap"),
            (Level::Raid5, Resync, AUTO, "policy bitmap"),
            (Level::Raid5, Marks, OFF, "write-intent bitmap is for"),
        ] {
            let refused = choose(level, Some(asked), bitmap).err().unwrap();
            assert!(refused.message.contains(why), "{level} {asked:?}: {refused}");
        }
    }
}
