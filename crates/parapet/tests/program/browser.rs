//! The web page in a real browser: live, without JavaScript, narrow, light and dark.

use serde_json::json;

use crate::panel::{free_port, with_page};
use crate::webdriver::Browser;
use crate::world::{Server, World, until};

/// The verdict of the only array.
const VERDICT: &str = "return document.querySelector('h2').innerText";
/// True if the page is wider than its window.
pub const OVERFLOWS: &str =
    "return document.documentElement.scrollWidth > document.documentElement.clientWidth";

/// Serves an array of three disks, and opens its page in a browser until it is live.
fn live_page(world: &World) -> (Server, Browser) {
    let members = world.create("5", 3, &[]);
    let (server, page) = with_page(world, &members, &[]);
    let browser = Browser::start(world);
    browser.open(&format!("http://{page}/"));
    browser.until_live();
    (server, browser)
}

#[test]
fn the_verdict_changes_live_after_a_failure() {
    let world = World::new();
    let (server, browser) = live_page(&world);
    assert_eq!(browser.script(VERDICT), "✓ tank: healthy, one disk may fail");
    browser.script("window.notReloaded = true");
    world.order(&["fail", "tank", "1"]);
    until(|| browser.script(VERDICT) == "✕ tank: critical, one more failure loses data");
    assert_eq!(browser.script("return window.notReloaded"), true);
    let title = browser.script("return document.title");
    assert_eq!(title, "tank: critical, one more failure loses data");
    let command = browser.script("return document.querySelector('pre code').innerText");
    assert!(command.as_str().unwrap().starts_with("parapet re-add tank "), "{command}");
    assert_eq!(browser.errors(), [""; 0]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_timeline_shows_the_latest_event_first_and_live() {
    let world = World::new();
    let (server, browser) = live_page(&world);
    // The words of the newest entries, and those of the command line.
    let shown = || {
        let words = "return [...document.querySelectorAll('.events .badge')]\
                     .map(word => word.innerText.split(' ').pop()).join(' ')";
        browser.script(words).as_str().unwrap().to_owned()
    };
    let recorded = || world.order(&["events", "tank"])["events"].as_array().unwrap().clone();
    let latest = || {
        let events = recorded();
        let words = events.iter().rev().take(12).map(|event| event["event"].as_str().unwrap());
        words.collect::<Vec<_>>().join(" ")
    };
    world.order(&["fail", "tank", "1"]);
    until(|| shown().contains("Fail") && shown() == latest());
    let text = "return document.querySelector('.events').innerText";
    assert!(browser.script(text).as_str().unwrap().contains("m1"));
    // More events than the page shows.
    while recorded().len() <= 12 {
        world.order(&["re-add", "tank", "m1"]);
        world.wait_until_idle();
        world.order(&["fail", "tank", "1"]);
    }
    until(|| shown() == latest());
    assert_eq!(shown().split(' ').count(), 12);
    assert_eq!(browser.errors(), [""; 0]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn an_open_page_says_that_its_server_is_gone_and_returns_with_it() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let address = format!("127.0.0.1:{}", free_port());
    let serve = || world.serve(&[&["tank"], &names[..], &["--page", &address]].concat());
    let server = serve();
    let browser = Browser::start(&world);
    browser.open(&format!("http://{address}/"));
    browser.until_live();
    server.kill();
    let connection = "return document.getElementById('connection').innerText";
    until(|| browser.script(connection).as_str().unwrap().starts_with("No connection"));
    let server = serve();
    browser.until_live();
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_page_works_without_javascript() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    let browser = Browser::start(&world);
    browser.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&format!("http://{page}/"));
    assert!(browser.nodes().contains("tank: healthy, one disk may fail"));
    world.order(&["fail", "tank", "1"]);
    // The page reloads by itself.
    until(|| browser.nodes().contains("tank: critical, one more failure loses data"));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_page_fits_a_phone_and_both_colour_schemes() {
    let world = World::new();
    let mut members = world.create("6", 8, &["--spare", "s0"]);
    members.push("s0".into());
    // Slow enough to be seen at work.
    let (server, page) = with_page(&world, &members, &["--speed-max", "64K"]);
    world.order(&["scrub", "tank"]);
    let browser = Browser::start(&world);
    browser.set_view(1280, "light");
    browser.open(&format!("http://{page}/"));
    until(|| browser.script(VERDICT).as_str().unwrap().contains("; scrubbing, "));
    browser.screenshot("scrub-light");
    world.order(&["fail", "tank", "1"]);
    world.order(&["fail", "tank", "2"]);
    until(|| browser.script(VERDICT).as_str().unwrap().contains("; rebuilding, "));
    let ground = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.script(ground), "rgb(244, 245, 247)");
    browser.screenshot("rebuild-light");
    browser.set_view(1280, "dark");
    assert_eq!(browser.script(ground), "rgb(15, 20, 25)");
    browser.screenshot("rebuild-dark");
    for scheme in ["light", "dark"] {
        browser.set_view(375, scheme);
        assert_eq!(browser.script("return innerWidth"), 375);
        assert_eq!(browser.script(OVERFLOWS), false);
        browser.screenshot(&format!("rebuild-narrow-{scheme}"));
    }
    assert_eq!(browser.errors(), [""; 0]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn an_array_of_24_disks_fits_a_phone() {
    let world = World::new();
    let members = world.create("6", 24, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    let browser = Browser::start(&world);
    browser.set_view(375, "light");
    browser.open(&format!("http://{page}/"));
    assert_eq!(browser.script("return document.querySelectorAll('.members li').length"), 24);
    assert_eq!(browser.script(OVERFLOWS), false);
    browser.screenshot("24-disks-narrow");
    assert_eq!(server.terminate(), 0);
}
