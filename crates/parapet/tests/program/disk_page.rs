//! The page of a disk, in front of real members on loop devices, with SMART data that a fake
//! smartctl prints. Needs root.

use jiff::civil::Date;
use jiff::{ToSpan, Zoned, tz::TimeZone};
use serde_json::{Value, json};

use crate::actions::{self, PASSWORD, log_in, post, set_password};
use crate::browser::OVERFLOWS;
use crate::disks::{FAST, Rack, attribute};
use crate::panel::with_page;
use crate::webdriver::Browser;
use crate::world::{Server, World, until};

const MODEL: &str = "ST4000VN006-3CW104";

fn today() -> Date {
    Zoned::now().with_time_zone(TimeZone::UTC).date()
}

/// A history of almost two years, in which three sectors were reallocated, up to yesterday.
fn days(serial: &str) -> String {
    let line = |ago: i32| {
        let reallocated = [0, 1, 3][usize::from(ago < 300) + usize::from(ago < 40)];
        let day = json!({
            "day": today() - ago.days(),
            "level": if reallocated == 0 { "ok" } else { "watch" },
            "serial": serial,
            "temperature_celsius": 33 + (ago / 9) % 7,
            "power_on_hours": 30_000 - 24 * ago,
            "raw": { "5": reallocated, "9": 30_000 - 24 * ago, "194": 33 + (ago / 9) % 7 },
        });
        format!("{day}\n")
    };
    (1..700).rev().map(line).collect()
}

/// Serves a RAID 5 of three disks, of which the first has a past, with a page that takes commands.
fn serve(rack: &Rack) -> (Server, String) {
    rack.create("5", 3);
    rack.set(0, |document| attribute(document, 5, 3));
    let name = rack.devices[0].trim_start_matches("/dev/");
    let folder = rack.world.path("state/health");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.days")), days("SERIAL0")).unwrap();
    assert_eq!(set_password(&rack.world, "page.password", PASSWORD), 0);
    let page = ["--page", "127.0.0.1:0", "--page-actions", "--page-login", "page.password"];
    let server = rack.serve(&[&FAST[..], &page].concat());
    let address = server.ready["page"].as_str().unwrap();
    let address = address.trim_start_matches("http://").trim_end_matches('/').to_owned();
    rack.wait_for(0, "watch");
    (server, address)
}

/// The address of the page of the member in this slot.
fn place(rack: &Rack, slot: usize) -> String {
    let status = rack.status();
    let member = &status["slots"][slot]["member"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    format!("/disk?array={}&member={}", text(&status["uuid"]), text(&member["uuid"]))
}

#[test]
fn the_page_of_a_disk_has_its_smart_data_and_its_history() {
    let Some(rack) = Rack::new(3) else { return };
    let (server, page) = serve(&rack);
    let cookie = log_in(&page, PASSWORD).cookie().unwrap().to_owned();
    let get = |path: &str| actions::get(&page, path, &cookie);
    let place = place(&rack, 0);
    let overview = get("/").body;
    assert!(overview.contains(&format!("href=\"{}\"", place[1..].replace('&', "&amp;"))));
    let html = get(&place).body;
    std::fs::write(rack.world.path("page.html"), &html).unwrap();
    for text in [
        MODEL,
        "SERIAL0",
        "in sync, slot 0 of tank",
        "3 reallocated sectors",
        "Reallocated Sector Ct: 1 → 3",
        "health: ok → watch, Reallocated Sector Ct: 0 → 1",
        "Short offline",
        "14800 h",
        "value 100, worst 100, threshold 10",
        "slot 1:",
        "33 to 39 °C since",
    ] {
        assert!(html.contains(text), "{text}: {}", rack.world.folder.display());
    }
    // Today's reading has joined the history, once.
    let name = rack.devices[0].trim_start_matches("/dev/");
    let kept = rack.read(&format!("state/health/{name}.days"));
    let of_today = format!("\"day\":\"{}\"", today());
    assert_eq!(kept.matches(&of_today).count(), 1, "{of_today}");
    assert!(html.contains("one a day: 700"));
    let url = "http://parapet/v1/arrays/tank/members/0/disks";
    let curl = ["curl", "--silent", "--unix-socket", "control.sock", url];
    let answer: Value = serde_json::from_str(&rack.world.tool("curl", &curl)).unwrap();
    crate::schema::check(&answer);
    assert_eq!(answer["data"]["disks"][0]["days"].as_array().unwrap().len(), 700);
    // By slot, and of an array that is not served.
    assert!(get("/disk?array=tank&member=1").body.contains("slot 1 of tank"));
    for nothing in ["/disk", "/disk?member=9", "/disk?array=vault&member=0"] {
        assert_eq!(get(nothing).status, 404, "{nothing}");
    }
    assert_eq!(actions::get(&page, &place, "").status, 303, "it needs the login");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_locate_led_is_switched_by_forms_of_the_page() {
    let Some(rack) = Rack::new(3) else { return };
    let (server, page) = serve(&rack);
    let cookie = log_in(&page, PASSWORD).cookie().unwrap().to_owned();
    let place = place(&rack, 1);
    let html = actions::get(&page, &place, &cookie);
    let (uuids, device) = (&place[6..], &rack.devices[1]);
    let form = format!("{uuids}&verb=locate&off=").replace(':', "%3A");
    let act = |form: &str| post(&page, "/act", &cookie, form);
    assert_eq!(act(&form).status, 403, "without the token");
    assert_eq!(rack.read("lit"), "");
    let form = format!("token={}&{form}", html.token());
    let done = act(&form);
    let back = format!("/{}", done.header("location").unwrap());
    assert!(back.starts_with(&place), "{back}");
    let said = actions::get(&page, &back, &cookie).body;
    assert!(said.contains(&format!("tank: {device}: its locate LED is on")), "{said}");
    act(&format!("{form}1"));
    let lit = format!("--listed-only locate={device}\n--listed-only locate_off={device}\n");
    assert_eq!(rack.read("lit"), lit);
    rack.program("ledctl", "echo no controller >&2; exit 1");
    let refused = format!("/{}", act(&form).header("location").unwrap());
    let said = actions::get(&page, &refused, &cookie).body;
    assert!(said.contains("its locate LED was not switched: ledctl: no controller"), "{said}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_page_of_a_disk_fits_a_phone_and_needs_no_javascript() {
    let Some(rack) = Rack::new(3) else { return };
    let (server, page) = serve(&rack);
    rack.world.qemu_io(&["write -P 3 0 4M", "read -P 3 0 4M", "flush"]);
    let browser = Browser::start(&rack.world);
    browser.set_view(1280, "light");
    browser.open(&format!("http://{page}/"));
    until(|| browser.nodes().contains("Log in"));
    browser.enter("input[name=password]", PASSWORD);
    browser.until_live();
    // From the grid of members.
    browser.press(".members li:first-child a");
    until(|| browser.nodes().contains("slot 0 of tank"));
    browser.screenshot("disk-light");
    for (width, scheme) in [(1280, "dark"), (375, "light"), (375, "dark")] {
        browser.set_view(width, scheme);
        assert_eq!(browser.script(OVERFLOWS), false, "{width} {scheme}");
        browser.screenshot(&format!("disk-{width}-{scheme}"));
    }
    assert_eq!(browser.errors(), [""; 0]);
    browser.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.press(".buttons form:first-child button");
    until(|| browser.nodes().contains("its locate LED is on"));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_file_is_on_no_disk_of_its_own() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    let html = crate::panel::get(&page, "/disk?array=tank&member=1");
    assert!(html.contains("m1: in sync, slot 1 of tank"), "{html}");
    assert!(html.contains("The member is on no disk of this machine"), "{html}");
    assert!(!html.contains("<form"), "{html}");
    assert_eq!(server.terminate(), 0);
}
