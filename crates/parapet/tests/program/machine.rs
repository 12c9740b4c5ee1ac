//! `parapet daemon`: all arrays of a machine by its configuration.

use serde_json::Value;

use crate::alerts::{program, tell, told};
use crate::world::{Server, World, until};

/// A folder of disks, a configuration, and the daemon.
pub struct Machine {
    pub world: World,
}

impl Machine {
    pub fn new(config: &str) -> Machine {
        let world = World::new();
        std::fs::create_dir(world.path("disks")).unwrap();
        let machine = Machine { world };
        machine.configure(config);
        machine
    }

    /// Writes the configuration, with the folder of the disks.
    pub fn configure(&self, more: &str) {
        let socket = format!("\"unix:{}\"", self.world.path("nbd.sock").display());
        self.configure_nbd(&socket, more);
    }

    /// Writes the configuration, with these addresses of the NBD server.
    pub fn configure_nbd(&self, listen: &str, more: &str) {
        let folder = self.world.path("disks").display().to_string();
        let text = format!(
            "[arrays]\nscan = [\"{folder}\"]\ndegraded_after = \"300 ms\"\n[nbd]\n\
             listen = [{listen}]\n{more}"
        );
        std::fs::write(self.world.path("parapet.toml"), text).unwrap();
    }

    fn disk(&self, name: &str) -> String {
        self.world.file(&format!("disks/{name}"), 64 << 20).display().to_string()
    }

    pub fn create(&self, name: &str, level: &str, disks: &[&str], more: &[&str]) -> Vec<String> {
        let disks: Vec<String> = disks.iter().map(|disk| self.disk(disk)).collect();
        let words: Vec<&str> = disks.iter().map(String::as_str).collect();
        let start = ["create", name, "--level", level, "--yes"];
        self.world.ok(&[&start[..], more, &words[..]].concat());
        disks
    }

    pub fn start(&self) -> Server {
        // These tests may run under nohup, and what is ignored from the start stays ignored.
        let program = ["env", "--default-signal=HUP", env!("CARGO_BIN_EXE_parapet"), "daemon"];
        let flags = ["--config", "parapet.toml", "--control", "control.sock", "--json"];
        self.world.launch_tool(&[&program[..], &flags].concat())
    }

    fn arrays(&self) -> Vec<Value> {
        let list = self.world.json(&["list", "--control", "control.sock"]);
        list["arrays"].as_array().unwrap().clone()
    }

    pub fn array(&self, name: &str) -> Option<Value> {
        self.arrays().into_iter().find(|array| array["name"] == name)
    }

    pub fn is_healthy(&self, name: &str) -> bool {
        self.array(name).is_some_and(|it| it["state"] == "healthy" && it["job"].is_null())
    }
}

/// The daemon starts what is complete at once and what is not after a while, adds what comes back,
/// and leaves alone what a user has stopped or removed.
#[test]
fn arrays_start_disks_come_back_and_users_are_obeyed() {
    let machine = Machine::new("[array.vault]\nexport = false\n");
    machine.create("tank", "5", &["t0", "t1", "t2"], &[]);
    let vault = machine.create("vault", "1", &["v0", "v1"], &[]);
    let away = machine.world.path("away");
    std::fs::rename(&vault[1], &away).unwrap();
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    assert!(machine.array("tank").unwrap()["exports"][0].as_str().unwrap().contains("/tank?"));
    until(|| machine.array("vault").is_some_and(|it| it["state"] == "critical"));
    assert_eq!(machine.array("vault").unwrap()["exports"], serde_json::json!([]));

    // The missing disk arrives.
    std::fs::rename(&away, &vault[1]).unwrap();
    until(|| machine.is_healthy("vault"));

    // A new array appears in the folder.
    machine.create("late", "1", &["l0", "l1"], &[]);
    until(|| machine.is_healthy("late"));

    // What a user removes stays removed, what a user stops stays stopped; both until asked.
    machine.world.order(&["fail", "tank", "1"]);
    let member = machine.world.path("disks/t1").display().to_string();
    machine.world.order(&["remove", "tank", &member]);
    machine.world.order(&["stop", "vault"]);
    machine.create("later", "1", &["x0", "x1"], &[]);
    until(|| machine.is_healthy("later"));
    assert!(machine.array("vault").is_none());
    assert_eq!(machine.array("tank").unwrap()["state"], "critical");
    machine.world.order(&["start", "vault"]);
    assert!(machine.array("vault").is_some());
    machine.world.order(&["re-add", "tank", &member]);
    until(|| machine.is_healthy("tank"));
    assert!(machine.world.order_refused(&["start", "other"], 5, "PPT-5001").contains("other"));

    // The daemon stays when its last array is stopped.
    for name in ["tank", "vault", "late", "later"] {
        machine.world.order(&["stop", name]);
    }
    assert!(machine.arrays().is_empty());
    assert_eq!(server.terminate(), 0);
}

/// An array whose members are arrays starts from the inside out; only the outer one is exported.
#[test]
fn nested_arrays_start_from_the_inside() {
    let machine = Machine::new("");
    for (name, disks) in [("left", ["a0", "a1"]), ("right", ["b0", "b1"])] {
        machine.create(name, "1", &disks, &[]);
    }
    let folder = machine.world.path("disks").display().to_string();
    let outer = ["create", "tank", "--level", "0", "--yes", "array:left", "array:right"];
    machine.world.ok(&[&outer[..], &["--scan", &folder]].concat());
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let exported: Vec<Value> =
        machine.arrays().into_iter().filter(|it| it["exports"] != serde_json::json!([])).collect();
    assert_eq!((machine.arrays().len(), exported.len()), (3, 1));
    assert_eq!(exported[0]["name"], "tank");
    // All three stop together, stay so, and start together.
    machine.world.order(&["stop", "tank"]);
    machine.create("other", "1", &["o0", "o1"], &[]);
    until(|| machine.is_healthy("other"));
    assert_eq!(machine.arrays().len(), 1, "{:?}", machine.arrays());
    machine.world.order(&["start", "tank"]);
    assert_eq!(machine.arrays().len(), 4);
    assert_eq!(server.terminate(), 0);
}

/// SIGHUP takes up a new configuration, and refuses a wrong one, while clients stay connected.
#[test]
fn a_reload_keeps_clients_and_refuses_mistakes() {
    let machine = Machine::new("[array.tank]\nspeed_max = \"20M\"\n");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let max = || machine.array("tank").unwrap()["speed"]["max"].clone();
    assert_eq!(max(), 20 << 20);
    machine.world.under_load("tank", || {
        machine.configure("[array.tank]\nspeed_max = \"30M\"\n");
        server.signal("HUP");
        until(|| max() == 30 << 20);
        machine.configure("[array.tank]\nspeed_max = \"30 furlongs\"\n");
        server.signal("HUP");
        until(|| machine.world.log().contains("not reloaded"));
        assert_eq!(max(), 30 << 20);
    });
    let refused =
        machine.world.refused(&["config", "check", "--config", "parapet.toml"], 2, "PPT-2001");
    assert!(refused.contains("parapet.toml:7: array.tank.speed_max"), "{refused}");
    assert_eq!(server.terminate(), 0);
}

/// The configuration says whom to tell; a reload adds a channel, and it gets the next event.
#[test]
fn a_reload_changes_who_is_told() {
    let machine = Machine::new("");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let hook = program(&machine.world, "hook", &tell(&machine.world));
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let channels = || machine.array("tank").unwrap()["alerts"].as_array().unwrap().len();
    assert_eq!(channels(), 0);
    let section = format!("[[notify]]\nkind = \"exec\"\nprogram = \"{}\"\n", hook.display());
    machine.configure(&section);
    server.signal("HUP");
    until(|| channels() == 1);
    machine.world.order(&["events", "tank", "--test"]);
    until(|| told(&machine.world).contains("TestMessage tank"));
    assert_eq!(server.terminate(), 0);
}

/// The schedule scrubs; a window that is closed pauses the scrub, and it goes on when it opens.
#[test]
fn the_schedule_scrubs_and_pauses() {
    let every = "[scrub]\nevery = \"1 ms\"\n";
    let machine = Machine::new("[scrub]\nenabled = false\n[array.tank]\nspeed_max = \"2M\"\n");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    machine.configure(&format!("{every}[array.tank]\nspeed_max = \"2M\"\n"));
    server.signal("HUP");
    let job = || machine.array("tank").unwrap()["job"].clone();
    until(|| job()["done_bytes"].as_u64() > Some(0));
    assert_eq!(job()["kind"], "check");
    machine.configure("[scrub]\nenabled = false\n[array.tank]\nspeed_max = \"2M\"\n");
    server.signal("HUP");
    until(|| job().is_null());
    let record = || machine.array("tank").unwrap()["scrub_record"].clone();
    let position = record()["position_bytes"].as_u64().unwrap();
    assert!(position > 0 && record()["completed"].is_null(), "{}", record());
    machine.configure("[scrub]\nevery = \"1 day\"\n");
    server.signal("HUP");
    until(|| record()["completed"].is_string());
    let scrub = machine.array("tank").unwrap()["last_scrub"].clone();
    let capacity = machine.array("tank").unwrap()["capacity_bytes"].as_u64().unwrap();
    assert_eq!(scrub["compared_bytes"], capacity - position, "only the rest: {scrub}");
    assert_eq!(server.terminate(), 0);
}

/// A device that is plugged in is found by its uevent, and joins its array again.
#[test]
fn a_device_that_is_plugged_in_joins_its_array() {
    let machine = Machine::new("");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let file = machine.world.path("t1");
    std::fs::rename(machine.world.path("disks/t1"), &file).unwrap();
    let file = file.display().to_string();
    // A number that the kernel gives to nobody who asks for a free device.
    let device = format!("/dev/loop{}", 10_000 + std::process::id() % 1_000);
    let server = machine.start();
    until(|| machine.array("tank").is_some_and(|it| it["state"] == "critical"));
    std::os::unix::fs::symlink(&device, machine.world.path("disks/t1")).unwrap();
    machine.world.tool("mount", &["losetup", &device, &file]);
    until(|| machine.is_healthy("tank"));
    assert_eq!(server.terminate(), 0);
    machine.world.tool("mount", &["losetup", "--detach", &device]);
}

/// The example in the package shows the defaults.
#[test]
fn the_example_is_the_default() {
    let world = World::new();
    std::fs::write(world.path("empty.toml"), "").unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/parapet.toml");
    let values = |file: &str| -> Vec<(Value, Value)> {
        let shown = world.json(&["config", "show", "--config", file]);
        let settings = shown["settings"].as_array().unwrap().clone();
        settings.into_iter().map(|it| (it["key"].clone(), it["value"].clone())).collect()
    };
    assert_eq!(values(example), values("empty.toml"));
}

/// A spare moves to the array of its group that needs one.
#[test]
fn arrays_of_a_group_share_their_spares() {
    let group = |name: &str| format!("[array.{name}]\nspare_group = \"shelf\"\n");
    let machine = Machine::new(&(group("rich") + &group("poor")));
    let spare = machine.disk("r2");
    machine.create("rich", "1", &["r0", "r1"], &["--spare", &spare]);
    machine.create("poor", "5", &["p0", "p1", "p2"], &[]);
    let server = machine.start();
    until(|| machine.is_healthy("rich") && machine.is_healthy("poor"));
    machine.world.order(&["fail", "poor", "0"]);
    until(|| machine.is_healthy("poor"));
    let poor = machine.array("poor").unwrap();
    let member = poor["slots"][0]["member"]["name"].as_str().unwrap().to_owned();
    assert!(member.contains("disks/r"), "{poor}");
    assert_eq!(machine.array("rich").unwrap()["spares"], serde_json::json!([]));
    assert_eq!(server.terminate(), 0);
}

/// The sockets stay with systemd while the daemon restarts: a client that connects meanwhile waits
/// for the new one. A script is systemd's part: it keeps the sockets, and passes them on.
#[test]
fn sockets_survive_a_restart_of_the_service() {
    let machine = Machine::new("");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let script = machine.world.path("systemd.py");
    std::fs::write(&script, SYSTEMD).unwrap();
    let program = env!("CARGO_BIN_EXE_parapet");
    let uri = machine.world.uri();
    let words = ["python3", script.to_str().unwrap(), program, &uri];
    let out = machine.world.tool("python3", &words);
    assert!(out.contains("2 sockets kept, 2 passed on") && out.contains("size"), "{out}");
}

/// Starts the daemon, keeps the sockets that it sends, kills it, connects a client, and starts the
/// daemon again with the sockets.
const SYSTEMD: &str = r#"
import array, os, signal, socket, subprocess, sys
program, uri = sys.argv[1:]
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind("notify")
os.environ["NOTIFY_SOCKET"] = os.path.abspath("notify")
control = os.path.abspath("control.sock")
words = [program, "daemon", "--config", "parapet.toml", "--control", control]

def start(kept):
    child = os.fork()
    if child:
        return child
    for at, (_, fd) in enumerate(kept):
        os.dup2(fd, 3 + at)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(kept))
    os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in kept)
    os.execv(program, words)

def until_ready():
    kept = []
    while True:
        text, fds, _, _ = socket.recv_fds(notify, 4096, 4)
        lines = dict(line.split("=", 1) for line in text.decode().splitlines())
        if "FDSTORE" in lines:
            # Above the descriptors that the next daemon gets.
            kept += [(lines["FDNAME"], os.dup2(fd, 100 + len(kept), False)) for fd in fds]
        if "READY" in lines:
            return kept

child = start([])
kept = until_ready()
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
client = subprocess.Popen(["nbdinfo", "--size", uri], stdout=subprocess.PIPE)
child = start(kept)
again = until_ready()
print("%d sockets kept, %d passed on" % (len(kept), len(kept) - len(again)))
print("size", client.communicate()[0].decode())
os.kill(child, signal.SIGTERM)
sys.exit(client.returncode or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;
