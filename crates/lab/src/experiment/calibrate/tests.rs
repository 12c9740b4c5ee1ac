//! Tests of calibration: constants that are known are found again.

use super::*;
use crate::experiment::load;

const DISKS: &str = r#"
name = "a busy core"
warm_up_s = 1
window_s = 2
seeds = 2
[hardware]
disks = "2xcheetah-15k5"
cpu = { request_ns = 1000 }
[array]
level = "raid1"
[[load.worker]]
pattern = "random"
count = 8
size = "16KiB"
zone = "20GiB"
[[constant]]
name = "work of a request"
path = "hardware.cpu.request_ns"
low = 0
high = 50e6
unit = "ns"
"#;

fn cell(name: &str, value: f64, status: &str, change: &str) -> String {
    format!(
        "[[cell]]\nname = \"{name}\"\nvalue = {value}\nunit = \"requests/s\"\n\
         status = \"{status}\"\n{change}\n"
    )
}

fn fitted(text: &str) -> Result<Calibration, String> {
    let experiment = load(text).map_err(|fault| fault.to_string())?;
    calibrate(&experiment, &|_, _| {}).map_err(|fault| fault.to_string())
}

#[test]
fn a_constant_is_found_again_and_explains_a_held_cell() {
    // What the models give with 12 ms, and there with other workers.
    let other = "change = { \"load.worker.0.count\" = 2 }";
    let rates = |nanos: u64| {
        let text = DISKS.replace("request_ns = 1000", &format!("request_ns = {nanos}"))
            + &cell("a", 1.0, "known", "")
            + &cell("b", 1.0, "held", other);
        let cells = reproduced(&load(&text).unwrap(), None).unwrap();
        [cells[0].reproduced, cells[1].reproduced]
    };
    let [plain, fewer] = rates(12_000_000);
    let text = DISKS.to_string()
        + &cell("8 writers", plain, "known", "")
        + &cell("2 writers", fewer, "held", other);
    let found = fitted(&text).unwrap();
    let constant = &found.constants[0];
    assert!((constant.value / 12e6 - 1.0).abs() < 0.03, "{constant:?}");
    assert_eq!((constant.before, constant.at_bound), (Some(1000.0), false));
    assert!(found.worst(CellStatus::Known) < 0.01 && found.worst(CellStatus::Held) < 0.02);
    assert_eq!(found.known_cells, 1);
    // Near a bound the simplex goes along it, and comes back.
    let near = fitted(&text.replace("high = 50e6", "high = 13e6")).unwrap();
    assert!((near.constants[0].value / 12e6 - 1.0).abs() < 0.03, "{near:?}");
    assert!(!near.constants[0].at_bound);
    let written = found.experiment.to_toml();
    assert_eq!(load(&written).unwrap().number("hardware.cpu.request_ns"), Some(constant.value));
    assert_eq!(fitted(&text).unwrap(), found, "equal experiments give equal constants");
}

#[test]
fn a_constant_that_no_value_fits_is_at_its_bound() {
    // From here on the core decides, not the disks: less is always more.
    let cpu = DISKS.replace("request_ns = 1000", "request_ns = 20000000");
    let text = cpu.replace("low = 0", "low = 10e6").replace("seeds = 2", "seeds = 1");
    let found = fitted(&(text + &cell("much", 1e6, "known", ""))).unwrap();
    assert!(found.constants[0].at_bound, "{found:?}");
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    let held = DISKS.to_string() + &cell("a", 100.0, "held", "");
    assert!(fitted(&held).unwrap_err().contains("1 constants, but 0 known cells"));
    let known = DISKS.to_string() + &cell("a", 100.0, "known", "");
    for (from, to, wanted) in [
        ("high = 50e6", "high = -1", "constant[0].high"),
        ("hardware.cpu.request_ns", "hardware.cpu.nothing", "nothing"),
        ("path = \"hardware.cpu.request_ns", "path = \"load.worker.7.count", "no such"),
        ("unit = \"ns\"", "", "unit"),
    ] {
        let text = known.replacen(from, to, 1);
        assert_ne!(text, known, "{from}");
        let error = fitted(&text).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
    let none = &known[..known.find("[[constant]]").unwrap()];
    let none = none.to_string() + &cell("a", 100.0, "known", "");
    assert!(fitted(&none).unwrap_err().contains("none to fit"));
}

#[test]
fn numbers_take_the_form_of_their_key() {
    let experiment = load(&(DISKS.to_string() + &cell("a", 1.0, "held", ""))).unwrap();
    let changed = |path: &str, number| experiment.with_number(path, number).unwrap().number(path);
    assert_eq!(changed("personality.write_overhead_us", 1.5), Some(1.5));
    assert_eq!(changed("personality.lost_revolutions_per_million", 7.6), Some(8.0));
    assert_eq!(changed("personality.lost_chunk", 65_536.2), Some(65_536.0));
    assert_eq!(changed("hardware.cpu.frame_ns", 1200.0), Some(1200.0));
    assert!(experiment.with_number("hardware.cache.depth", 2.0).is_err(), "a cache has a size");
}
