//! The prompt of `parapet page password` in a real terminal: util-linux's `script`.

use std::io::{Read, Write};
use std::process::{Child, Stdio};

use crate::world::World;

/// A shell in a terminal that asks for a password, then shows how the terminal is set.
struct Terminal {
    process: Child,
    keyboard: Box<dyn Write>,
    screen: Box<dyn Read>,
    /// What it has shown so far.
    shown: String,
}

impl Terminal {
    fn start(world: &World) -> Terminal {
        let program = env!("CARGO_BIN_EXE_parapet");
        // The shell outlives a Ctrl-C.
        let commands =
            format!("trap : INT; {program} page password p; echo status $?; stty -a; echo end");
        let mut command = world.command_of(&["script", "-q", "-c", &commands, "/dev/null"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).env("LC_ALL", "C");
        let mut process = command.spawn().expect("install the package bsdutils");
        let keyboard = Box::new(process.stdin.take().unwrap());
        let screen = Box::new(process.stdout.take().unwrap());
        Terminal { process, keyboard, screen, shown: String::new() }
    }

    fn until(&mut self, words: &str) {
        let mut byte = [0];
        while !self.shown.contains(words) {
            let count = self.screen.read(&mut byte).unwrap();
            assert_eq!(count, 1, "{words:?} never comes: {}", self.shown);
            self.shown.push(char::from(byte[0]));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// True if the terminal shows what is typed, at the end.
    fn has_echo(&mut self) -> bool {
        self.until("\nend");
        self.process.wait().unwrap();
        let mut settings = self.shown.split_whitespace();
        settings.any(|word| word == "echo")
    }
}

#[test]
fn a_password_is_not_shown_and_is_asked_for_twice() {
    let world = World::new();
    let mut terminal = Terminal::start(&world);
    for prompt in ["New password: ", "The same again: "] {
        terminal.until(prompt);
        terminal.press("correct horse\n");
    }
    terminal.until("the password is stored");
    assert!(terminal.has_echo() && terminal.shown.contains("status 0"), "{}", terminal.shown);
    assert!(!terminal.shown.contains("horse"), "{}", terminal.shown);
    assert!(world.path("p").exists());
}

#[test]
fn after_ctrl_c_the_terminal_shows_again_what_is_typed() {
    let world = World::new();
    for prompts in [&["New password: "][..], &["New password: ", "The same again: "]] {
        let mut terminal = Terminal::start(&world);
        let (last, before) = prompts.split_last().unwrap();
        for prompt in before {
            terminal.until(prompt);
            terminal.press("correct horse\n");
        }
        terminal.until(last);
        terminal.press("corr\x03");
        assert!(terminal.has_echo(), "{}", terminal.shown);
        assert!(terminal.shown.contains("interrupted"), "{}", terminal.shown);
        assert!(terminal.shown.contains("status 1"), "{}", terminal.shown);
        assert!(!world.path("p").exists());
    }
}
