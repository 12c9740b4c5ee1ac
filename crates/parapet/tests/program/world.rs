//! A private folder, the program, servers that end with their test, and external tools.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

/// Time limit in seconds of an external tool.
const PATIENCE_S: &str = "60";

/// The pause between two looks at what a test waits for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A folder in memory, if such a file system is mounted; removed with the test.
pub struct World {
    pub folder: PathBuf,
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl World {
    pub fn new() -> World {
        let shm = Path::new("/dev/shm");
        World::inside(&if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() })
    }

    /// A folder on a disk, whose files take no memory.
    pub fn on_disk() -> World {
        World::inside(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    fn inside(parent: &Path) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("parapet-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join("run")).unwrap();
        World { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates a sparse file of this size.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    }

    /// Creates a file with different bytes at every offset.
    pub fn pattern(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, pattern(bytes, 7)).unwrap();
        path
    }

    /// Builds a command of the program in this folder, isolated from the machine's state.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(&[&[env!("CARGO_BIN_EXE_parapet")], arguments].concat())
    }

    /// As [`World::command`], of a program that runs ours.
    pub fn command_of(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.folder).stdin(Stdio::null());
        command.env("PARAPET_STATE", self.path("state"));
        command.env("PARAPET_RUNTIME", self.path("run"));
        for name in ["PARAPET_CONTROL", "PARAPET_LOG", "NOTIFY_SOCKET", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments).output().unwrap())
    }

    /// Runs it; it must succeed. Returns standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs it with `--json`; returns the data.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(&[arguments, &["--json"]].concat());
        let value: Value = serde_json::from_str(&out).unwrap();
        crate::schema::check(&value);
        value["data"].clone()
    }

    /// Runs it; it must fail with this status and id, in JSON as in text. Returns the message.
    pub fn refused(&self, arguments: &[&str], code: i32, id: &str) -> String {
        self.refused_under(&[], arguments, code, id)
    }

    /// As [`World::refused`], under a wrapper command.
    pub fn refused_under(
        &self,
        wrapper: &[&str],
        arguments: &[&str],
        code: i32,
        id: &str,
    ) -> String {
        let program = [env!("CARGO_BIN_EXE_parapet")];
        let words = [wrapper, &program, arguments, &["--json"]].concat();
        let ran = ran(self.command_of(&words).output().unwrap());
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        let value: Value = serde_json::from_str(&ran.out).expect(&ran.out);
        crate::schema::check(&value);
        let error = &value["error"];
        assert_eq!(error["exit_code"], code, "{error}");
        assert_eq!(error["id"], id, "{error}");
        assert!(!error["action"].as_str().unwrap().is_empty(), "{error}");
        format!("{} {}", error["message"].as_str().unwrap(), error["action"].as_str().unwrap())
    }

    /// Creates an array `tank` of new files `m0`, `m1` … of 16 MiB; returns their names.
    pub fn create(&self, level: &str, members: usize, more: &[&str]) -> Vec<String> {
        let members: Vec<String> = (0..members).map(|index| format!("m{index}")).collect();
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let start = ["create", "tank", "--level", level, "--new-files", "16M", "--yes"];
        self.ok(&[&start[..], more, &names].concat());
        members
    }

    /// Serves with these `arguments`, over NBD and control sockets in the folder.
    pub fn serve(&self, arguments: &[&str]) -> Server {
        let (nbd, control) = (self.path("nbd.sock"), self.path("control.sock"));
        let (nbd, control) =
            (format!("unix:{}", nbd.display()), format!("unix:{}", control.display()));
        let flags = ["--nbd", &nbd, "--control", &control, "--json", "-v"];
        self.start(&[&["serve"], arguments, &flags].concat())
    }

    /// As [`World::serve_members`], under a wrapper command that ends with the server.
    pub fn serve_under(&self, wrapper: &[&str], members: &[String]) -> Server {
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let flags = ["--nbd", "unix:nbd.sock", "--control", "unix:control.sock", "--json", "-v"];
        let program = [env!("CARGO_BIN_EXE_parapet"), "serve", "tank"];
        let words = [wrapper, &program, &members, &flags].concat();
        self.launch_tool(&words)
    }

    /// Starts a server and waits until it reports in JSON that it is ready.
    pub fn start(&self, arguments: &[&str]) -> Server {
        self.launch(self.command(arguments))
    }

    /// Starts a server through other programs, as [`World::start`].
    pub fn launch_tool(&self, words: &[&str]) -> Server {
        let mut command = self.command_of(words);
        command.env("LC_ALL", "C");
        self.launch(command)
    }

    fn launch(&self, mut command: Command) -> Server {
        let arguments = format!("{command:?}");
        let log =
            std::fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut out: Box<dyn BufRead> = Box::new(BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let Ok(ready) = serde_json::from_str::<Value>(&line) else {
            panic!("{arguments} said {line:?}; {}", self.log());
        };
        assert!(ready["error"].is_null(), "{arguments}: {ready}; {}", self.log());
        crate::schema::check(&ready);
        Server { child, out, ready: ready["data"].clone() }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Serves all named members.
    pub fn serve_members(&self, members: &[String]) -> Server {
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        self.serve(&[&["tank"], &names[..]].concat())
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///tank?socket={}", self.path("nbd.sock").display())
    }

    /// Runs a control command; it must succeed. Returns the JSON data.
    pub fn order(&self, arguments: &[&str]) -> Value {
        let control = format!("--control=unix:{}", self.path("control.sock").display());
        self.json(&[arguments, &[&control]].concat())
    }

    /// Runs a control command that must be refused.
    pub fn order_refused(&self, arguments: &[&str], code: i32, id: &str) -> String {
        let control = format!("--control=unix:{}", self.path("control.sock").display());
        self.refused(&[arguments, &[&control]].concat(), code, id)
    }

    /// Waits until the array is healthy and no job runs.
    pub fn wait_until_idle(&self) -> Value {
        self.order(&["wait", "tank", "--for", "whole", "--timeout", PATIENCE_S, "--quiet"]);
        self.order(&["wait", "tank", "--timeout", PATIENCE_S, "--quiet"])["array"].clone()
    }

    /// Waits until no job runs, whether the array is healthy or not.
    pub fn settle_idle(&self) -> Value {
        self.order(&["wait", "tank", "--timeout", PATIENCE_S, "--quiet"])["array"].clone()
    }

    /// Runs an external program; it must succeed.
    pub fn tool(&self, package: &str, words: &[&str]) -> String {
        let ran = self.try_tool(package, words);
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}\n{}", self.log());
        ran.out
    }

    pub fn try_tool(&self, package: &str, words: &[&str]) -> Ran {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE_S).args(words).current_dir(&self.folder).stdin(Stdio::null());
        let ran = ran(command.output().unwrap());
        assert_ne!(ran.code, 127, "{} is missing: install the package {package}", words[0]);
        ran
    }

    /// Runs an external program that runs ours; it must succeed. Returns standard output.
    pub fn tool_of(&self, words: &[&str]) -> String {
        let ran = ran(self.command_of(words).output().unwrap());
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
        ran.out
    }

    pub fn nbdcopy(&self, from: &str, to: &str) {
        self.tool("libnbd-bin", &["nbdcopy", "--flush", from, to]);
    }

    /// Runs qemu-io with these commands; each must succeed.
    pub fn qemu_io(&self, commands: &[&str]) -> String {
        let uri = self.uri();
        let mut words = vec!["qemu-io", "-f", "raw"];
        commands.iter().for_each(|command| words.extend(["-c", command]));
        words.push(&uri);
        let out = self.tool("qemu-utils", &words);
        assert!(!out.contains("failed"), "{out}\n{}", self.log());
        out
    }

    /// Runs random writes of all sizes in this part of the array (in fio's units) `loops`
    /// times, and verifies them.
    pub fn fio(&self, offset: &str, size: &str, loops: u32) {
        let fixed = "fio --name=t --ioengine=nbd --rw=randwrite --bsrange=512-128k \
                     --blockalign=512 --iodepth=16 --verify=crc32c --do_verify=1 \
                     --verify_fatal=1 --randseed=5";
        let own = [
            format!("--uri={}", self.uri()),
            format!("--offset={offset}"),
            format!("--size={size}"),
            format!("--loops={loops}"),
        ];
        let words: Vec<&str> =
            fixed.split_whitespace().chain(own.iter().map(String::as_str)).collect();
        self.tool("fio", &words);
    }

    /// Runs this while fio writes and verifies from byte 8 MiB to 12 MiB; fio must see no error.
    /// The state of `array` shows that writes have begun.
    pub fn under_load(&self, array: &str, meanwhile: impl FnOnce()) {
        let enough = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    self.fio("8M", "4M", 6);
                }
            });
            // End the load even if a step here fails.
            let _end = Raise(&enough);
            until(|| load.is_finished() || self.order(&["status", array])["dirty"] == true);
            meanwhile();
        });
    }

    /// Reads the content of the array.
    pub fn content(&self) -> Vec<u8> {
        let _ = std::fs::remove_file(self.path("content"));
        self.nbdcopy(&self.uri(), "content");
        std::fs::read(self.path("content")).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Raises a flag when dropped.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server; killed with its test.
pub struct Server {
    child: Child,
    out: Box<dyn BufRead>,
    pub ready: Value,
}

impl Server {
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Sends a stop signal, and returns its exit status.
    pub fn terminate(self) -> i32 {
        self.signal("TERM");
        self.wait()
    }

    /// Waits for its end, and returns its exit status.
    pub fn wait(mut self) -> i32 {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Kills it without a warning, like a power failure of this process.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ran(output: Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Returns bytes that differ by offset and by seed.
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let word = |index: u64| (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed << 17);
    (0..bytes as u64).map(|index| (word(index / 8) >> (8 * (index % 8))) as u8).collect()
}

/// Reports that a test needs root, past the test runner, which hides the output of passing tests.
/// Panics if this is root.
pub fn not_tried(what: &str) {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    assert!(!is_root, "root cannot do this: {what}");
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {test} {what}; run it as root");
}

/// Polls until the condition holds; the test runner enforces the timeout.
pub fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        // Each look runs a program: without a pause they take the processor from what they await.
        std::thread::sleep(LOOK_EVERY);
    }
}
