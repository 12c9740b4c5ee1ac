//! Contrast of the colours in `assets/style.css`, by the formula of WCAG 2.

use std::collections::BTreeMap;

const SHEET: &str = include_str!("../assets/style.css");
/// What text needs (WCAG 2, success criterion 1.4.3).
const TEXT: f64 = 4.5;

/// The colours `--name: #rrggbb` of a part of the sheet, as luminance.
fn colours(sheet: &str) -> BTreeMap<&str, f64> {
    let declaration = |line: &'static str| {
        let (name, value) = line.trim().strip_prefix("--")?.split_once(": #")?;
        let number = u32::from_str_radix(value.trim_end_matches(';'), 16).unwrap();
        let channel = |shift: u32| {
            let part = f64::from(number >> shift & 0xff) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let luminance = 0.2126 * channel(16) + 0.7152 * channel(8) + 0.0722 * channel(0);
        Some((name, luminance))
    };
    let start = SHEET.find(sheet).unwrap();
    let end = start + SHEET[start..].find("\n}").unwrap();
    SHEET[start..end].lines().filter_map(declaration).collect()
}

fn contrast(one: f64, other: f64) -> f64 {
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_is_legible_in_both_schemes() {
    let light = colours(":root {");
    let mut dark = light.clone();
    dark.extend(colours("@media (prefers-color-scheme: dark)"));
    assert_ne!(light["ground"], dark["ground"]);
    for scheme in [light, dark] {
        let pairs = ["ink", "faint"].into_iter().flat_map(|ink| [(ink, "ground"), (ink, "card")]);
        let on = [("on-good", "good"), ("on-busy", "busy"), ("on-warning", "warning")];
        let all = pairs.chain(on).chain([("on-critical", "critical")]);
        for (ink, ground) in all {
            let found = contrast(scheme[ink], scheme[ground]);
            assert!(found >= TEXT, "{ink} on {ground}: {found:.2}");
        }
    }
}

#[test]
fn text_never_has_the_colour_of_a_state() {
    for line in SHEET.lines().filter(|line| line.trim_start().starts_with("color: ")) {
        assert!(line.contains("--ink") || line.contains("--faint") || line.contains("inherit"));
    }
}
