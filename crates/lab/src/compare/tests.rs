//! Tests of comparisons: ratios, spreads and differing keys.

use super::*;

const SMALL: &str = r#"
name = "one"
warm_up_s = 0.2
window_s = 1
seeds = 2
[hardware]
disks = "2xhd501lj"
[array]
level = "raid0"
chunk = "64KiB"
[[load.worker]]
pattern = "random"
size = "16KiB"
zone = "10GiB"
"#;

#[test]
fn ratios_and_differences_are_listed() {
    let one = experiment::load(SMALL).unwrap();
    let deeper =
        SMALL.replacen("\"one\"", "\"two\"", 1).replacen("\nsize", "\ncount = 16\nsize", 1);
    let two = experiment::load(&deeper).unwrap();
    let text = run(&one, &two).unwrap();
    assert!(text.starts_with("A: one\nB: two\n"), "{text}");
    let rate = text.lines().find(|line| line.contains("requests/s")).unwrap();
    let ratio: f64 = rate.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((2.0..8.0).contains(&ratio), "{text}");
    let difference = "The experiments differ in:\n  load.worker[0].count: 1 | 16\n";
    assert!(text.ends_with(difference), "{text}");
    let same = run(&one, &one).unwrap();
    assert!(same.contains("1.000~") && same.contains("are equal"), "{same}");
}
