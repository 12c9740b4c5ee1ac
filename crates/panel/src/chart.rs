//! A small line chart of values over days.

use jiff::civil::Date;
use maud::{Markup, html};

/// Size of the drawing in its own units; the sheet stretches it.
const WIDE: f64 = 240.0;
const HIGH: f64 = 40.0;
/// Room for the line's own width.
const EDGE: f64 = 2.0;

/// Draws values over days, the oldest first. `words` says the same to those who do not see it.
pub(crate) fn chart<T: Copy + Into<i128>>(points: &[(Date, T)], words: &str) -> Markup {
    let points: Vec<(i128, i128)> =
        points.iter().map(|&(day, value)| (number_of(day), value.into())).collect();
    let Some(line) = line(&points) else { return html! {} };
    html! {
        svg.chart viewBox=(format!("0 0 {WIDE} {HIGH}")) preserveAspectRatio="none" role="img"
            aria-label=(words) { path d=(line) {} }
    }
}

/// Days since an arbitrary one.
fn number_of(day: Date) -> i128 {
    let since = day.duration_since(Date::ZERO);
    since.as_hours().div_euclid(24).into()
}

/// The path through the points; none without two days.
fn line(points: &[(i128, i128)]) -> Option<String> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let least = points.iter().map(|point| point.1).min()?;
    let most = points.iter().map(|point| point.1).max()?;
    if first == last {
        return None;
    }
    let share = |part: i128, whole: i128| if whole == 0 { 0.5 } else { part as f64 / whole as f64 };
    let place = |&(day, value): &(i128, i128)| {
        let x = EDGE + (WIDE - 2.0 * EDGE) * share(day - first, last - first);
        let y = HIGH - EDGE - (HIGH - 2.0 * EDGE) * share(value - least, most - least);
        format!("{x:.1} {y:.1}")
    };
    // Within a level stretch, its ends are enough.
    let is_corner = |index: &usize| {
        let beside = [index.checked_sub(1), Some(index + 1)].map(|at| points.get(at?));
        beside.iter().any(|other| other.is_none_or(|other| other.1 != points[*index].1))
    };
    let corners = (0..points.len()).filter(is_corner).map(|index| place(&points[index]));
    Some(format!("M{}", corners.collect::<Vec<_>>().join("L")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_go_to_the_right_and_values_up() {
        let found = line(&[(10, 5), (12, 7), (14, 6)]);
        assert_eq!(found.as_deref(), Some("M2.0 38.0L120.0 2.0L238.0 20.0"));
        assert_eq!(line(&[(1, 3), (2, 3)]).as_deref(), Some("M2.0 20.0L238.0 20.0"));
        let level = line(&[(0, 3), (1, 3), (2, 3), (3, 3), (4, 7)]);
        assert_eq!(level.as_deref(), Some("M2.0 38.0L179.0 38.0L238.0 2.0"));
        assert_eq!(line(&[(1, 3)]), None);
        let most = i128::from(u64::MAX);
        assert_eq!(line(&[(1, 0), (2, most)]).as_deref(), Some("M2.0 38.0L238.0 2.0"));
    }
}
