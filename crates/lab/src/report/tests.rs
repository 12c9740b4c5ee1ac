//! Tests of reports: they stand alone, are well formed, and name their origin.

use super::*;
use crate::experiment;
use crate::experiment::outcome::HeadLine;

const SMALL: &str = r#"
name = "a <small> & short one"
warm_up_s = 0.2
window_s = 3
seeds = 2
[hardware]
disks = "3xhd501lj"
[array]
level = "raid5"
chunk = "64KiB"
[[load.worker]]
pattern = "random"
write_percent = 30
size = "16KiB"
zone = "10GiB"
[[event]]
at_s = 1.5
do = "fail"
slot = 0
[[cell]]
name = "guess"
value = 70
unit = "requests/s"
status = "held"
"#;

fn outcome(count: usize) -> Outcome {
    let text = SMALL.replacen("write_percent", &format!("count = {count}\nwrite_percent"), 1);
    experiment::run(&experiment::load(&text).unwrap()).unwrap()
}

/// Every start tag has its end, in order.
fn balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap_or_else(|| panic!("{part}"));
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text}");
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap_or_default();
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !(tag.ends_with('/') || ["!DOCTYPE", "meta"].contains(&name)) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_page_stands_alone_and_every_plot_names_its_origin() {
    let outcomes = [outcome(1), outcome(4)];
    let table = crate::seeds::r4::boxes_table();
    let tables = [table];
    let report = Report {
        title: "Two depths",
        commit: Some("abc123"),
        outcomes: &outcomes,
        tables: &tables,
    };
    let page = html(&report);
    balanced(&page);
    for outside in ["http:", "https:", "src=", "url(", "@import", "<script", "NaN", "inf"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let plots = page.matches("<svg").count();
    // 2 against the depth; for each outcome 2, 3 over time, 1 of stations, 3 of heads, 1 of cells.
    assert_eq!(plots, 2 + 2 * 10 + 1);
    assert_eq!(page.matches(">simulated · ").count(), plots);
    assert_eq!(page.matches("Constants: ").count(), plots);
    assert_eq!(page.matches("seed 1 ·").count() + page.matches("seed 2 ·").count(), 2 * 9);
    assert!(page.contains("a &lt;small&gt; &amp; short one") && page.contains("abc123"));
    assert!(page.contains("1: 1.5 s, disk0"));
    assert!(page.contains("prefers-color-scheme:dark"));
}

#[test]
fn an_empty_outcome_has_a_page() {
    let mut outcome = outcome(1);
    outcome.runs.iter_mut().for_each(|run| {
        run.read = Default::default();
        run.write = Default::default();
        run.seconds.clear();
        run.stations.clear();
        run.heads.clear();
    });
    let mut page = html(&Report { title: "", outcomes: &[outcome.clone()], ..Report::default() });
    balanced(&page);
    outcome.runs.clear();
    page += &html(&Report { title: "", outcomes: &[outcome], ..Report::default() });
    assert!(!page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn a_latency_is_drawn_where_it_is() {
    let mut run = outcome(1).runs.remove(0);
    run.write = Default::default();
    let mut side = crate::experiment::outcome::Side::default();
    (0..100).for_each(|_| side.latencies.add(5_000_000));
    (side.requests, side.min_ns, side.max_ns) = (100, 5_000_000, 5_000_000);
    run.read = side;
    let svg = plots::histogram(&run, "");
    assert!(svg.contains("reads: 100.0 % in 4.64 ms to 5.62 ms"), "{svg}");
}

#[test]
fn a_plot_is_also_a_file_of_its_own() {
    let outcomes = [outcome(1), outcome(4)];
    let tables = [crate::seeds::r4::boxes_table()];
    let report = Report { outcomes: &outcomes, tables: &tables, ..Report::default() };
    let figures = figures(&report);
    assert_eq!(figures.len(), html(&report).matches("<svg").count());
    for name in ["latency-by-depth", "a-small-short-one-heads-disk0", "r4-cells"] {
        let figure = figures.iter().find(|figure| figure.name == name);
        let file = figure.unwrap_or_else(|| panic!("{name} is drawn")).file();
        balanced(&file);
        assert!(file.starts_with("<svg xmlns=") && file.ends_with("</svg>\n"), "{name}");
        assert!(file.contains("simulated") && file.contains("Constants: "), "{name}");
    }
}

/// A seek goes from the cylinder where the heads were to the one where they end; all else stays.
#[test]
fn heads_are_drawn_where_they_are() {
    let span = |from_ns, until_ns, what: &str, cylinder| crate::experiment::outcome::HeadSpan {
        from_ns,
        until_ns,
        what: what.into(),
        cylinder,
    };
    let spans = vec![
        span(0, 1_000_000, "command", 100),
        span(1_000_000, 3_000_000, "seek", 300),
        span(3_000_000, 4_000_000, "transfer", 300),
    ];
    let line = HeadLine { name: "disk0".into(), cylinders: 1000, spans };
    let svg = plots::heads(&line, "");
    let lines: Vec<Vec<&str>> = svg
        .split("<polyline")
        .skip(1)
        .map(|line| line.split("points=\"").nth(1).unwrap().split('"').next().unwrap())
        .map(|points| points.split([' ', ',']).collect())
        .collect();
    let ends: Vec<[&str; 2]> = lines.iter().map(|points| [points[1], points[3]]).collect();
    let [command, seek, transfer] = ends[..] else { panic!("{ends:?}") };
    assert!(command[0] == command[1] && transfer[0] == transfer[1]);
    assert_eq!([command[1], transfer[0]], seek);
    assert_ne!(seek[0], seek[1]);
}
