//! The pages with forms: the actions of an array, and the login.
//!
//! Never live: an update must not take away what is being typed. They need no JavaScript.

use maud::{DOCTYPE, Markup, html};

use crate::action::needs_name;
use crate::disk;
use crate::document::{Array, JobKind, Member};
use crate::html::{former, glyph, head, level_class, state_words, verdict_line};
use crate::metrics::places;
use crate::verdict::{self, Level};

/// The result of a command, as the control API gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Its message.
    Done(String),
    /// Why it was refused or failed, and the next step.
    Refused(String, Option<String>),
}

/// The actions of an array.
pub(crate) fn actions(array: &Array, outcome: Option<&Outcome>, token: &str) -> String {
    let form = Forms { array, token };
    let body = html! {
        @if let Some(outcome) = outcome { (result(outcome)) }
        section {
            (verdict_line(array))
            (form.scrub())
            (form.disks())
            h3 { "Add a disk" }
            p.faint { "It fills a missing slot, otherwise becomes a spare. Its content is lost; a \
                       disk with a file system or other signatures is refused." }
            (form.with_fields("add", &[], html! {
                (text_field("Block device or file", "member", "/dev/…"))
            }, "Add"))
            h3 { "Error counts" }
            (form.button("clear", &[], "Clear all"))
        }
    };
    shell(&format!("{}: actions", array.name), body)
}

/// A page that says why a request was not carried out.
pub(crate) fn refused(why: &str) -> String {
    shell("Parapet: refused", result(&Outcome::Refused(why.into(), None)))
}

/// The login.
pub(crate) fn login(why_not: Option<&str>) -> String {
    let body = html! {
        @if let Some(why) = why_not { (result(&Outcome::Refused(why.into(), None))) }
        section {
            h2 { "Log in" }
            form method="post" action="login" {
                div.fields {
                    label { "Password"
                        input type="password" name="password" autocomplete="current-password"
                            required autofocus;
                    }
                }
                button type="submit" { "Log in" }
            }
        }
    };
    shell("Parapet: log in", body)
}

/// A button that ends the session.
pub(crate) fn logout(token: &str) -> Markup {
    html! {
        form method="post" action="logout" {
            input type="hidden" name="token" value=(token);
            button type="submit" { "Log out" }
        }
    }
}

/// A form of hidden fields and a button.
pub(crate) fn button(token: &str, hidden: &[(&str, &str)], words: &str) -> Markup {
    html! {
        form method="post" action="act" {
            input type="hidden" name="token" value=(token);
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            button type="submit" { (words) }
        }
    }
}

pub(crate) fn shell(title: &str, body: Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (head(title)) }
            body {
                header { h1 { "Parapet" } p { a href="./" { "All arrays" } } }
                main { (body) }
            }
        }
    }
    .into_string()
}

pub(crate) fn result(outcome: &Outcome) -> Markup {
    let (level, text, next) = match outcome {
        Outcome::Done(message) => (Level::Good, message, None),
        Outcome::Refused(why, next) => (Level::Critical, why, next.as_ref()),
    };
    html! {
        div.outcome.(level_class(level)) role="status" {
            p { (glyph(level)) " " (text) }
            @if let Some(next) = next { pre { code { (next) } } }
        }
    }
}

fn text_field(label: &str, name: &str, hint: &str) -> Markup {
    html! {
        label { (label) input type="text" name=(name) placeholder=(hint) autocomplete="off"; }
    }
}

/// The forms of an array.
struct Forms<'a> {
    array: &'a Array,
    token: &'a str,
}

impl Forms<'_> {
    /// A form with hidden fields, fields to fill in and a button. It asks for the array's name
    /// where the command costs redundancy.
    fn with_fields(
        &self,
        verb: &str,
        hidden: &[(&str, &str)],
        fields: Markup,
        button: &str,
    ) -> Markup {
        let member = hidden.iter().find(|(name, _)| *name == "member").map(|(_, value)| *value);
        let name = &self.array.name;
        let confirms = needs_name(verb, member, self.array);
        let label = format!("Type {name} to confirm");
        html! {
            form method="post" action="act" class=(verb) {
                input type="hidden" name="token" value=(self.token);
                input type="hidden" name="array" value=(self.array.uuid);
                input type="hidden" name="verb" value=(verb);
                @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
                div.fields { (fields) @if confirms { (text_field(&label, "name", "")) } }
                button type="submit" { (button) }
            }
        }
    }

    fn button(&self, verb: &str, hidden: &[(&str, &str)], words: &str) -> Markup {
        self.with_fields(verb, hidden, html! {}, words)
    }

    fn scrub(&self) -> Markup {
        let array = self.array;
        if array.redundancy == 0 {
            return html! {};
        }
        let scrubs = |kind: JobKind| matches!(kind, JobKind::Check | JobKind::Repair);
        let runs = array.job.as_ref().is_some_and(|job| scrubs(job.kind));
        let mut choices = vec![("check", "Check"), ("repair", "Check and repair")];
        if array.scrub_record.position_bytes > 0 {
            choices.push(("resume", "Resume"));
        }
        if runs {
            choices = vec![("stop", "Stop")];
        }
        html! {
            h3 { "Scrub" }
            p.faint { "A check compares all data with its redundancy; a repair also corrects \
                       mismatches between members." }
            div.buttons {
                @for (what, words) in choices { (self.button("scrub", &[("scrub", what)], words)) }
            }
        }
    }

    /// The members, each with the commands that its state allows.
    fn disks(&self) -> Markup {
        let array = self.array;
        let mut rows = places(array);
        rows.sort_by_key(|(_, slot, _)| slot.unwrap_or(usize::MAX));
        html! {
            h3 { "Disks" }
            ul.disks {
                @for (member, slot, state) in rows {
                    @let place = slot.map_or_else(|| former(member), |slot| format!("slot {slot}"));
                    li { details {
                        summary {
                            (place) ", " (state_words(state).1) ": " (array.disk_name(member))
                        }
                        @if array.disk_name(member) != member.name {
                            p.faint.name { (member.name) }
                        }
                        p { a href=(disk::address(array, member)) { "SMART data and history" } }
                        (self.disk(member, state))
                    } }
                }
            }
        }
    }

    fn disk(&self, member: &Member, state: &str) -> Markup {
        let it = [("member", member.uuid.as_str())];
        let with = text_field("New disk, or empty for a spare of the array", "with", "/dev/…");
        html! {
            @match state {
                "active" | "rebuilding" => {
                    @if state == "active" {
                        (self.with_fields("replace", &it, with, "Replace"))
                        p { (self.after_a_loss()) }
                    }
                    (self.button("fail", &it, "Mark faulty"))
                }
                "spare" => { (self.button("remove", &it, "Remove")) }
                _ => {
                    (self.button("re-add", &it, "Re-add"))
                    (self.button("remove", &it, "Remove"))
                }
            }
        }
    }

    /// The plan of a failure.
    fn after_a_loss(&self) -> String {
        let array = self.array;
        let spares = match array.spares.len() {
            0 => "there is no spare",
            1 => "the spare takes over",
            _ => "a spare takes over",
        };
        match array.redundancy_left {
            0 => format!("Now: {}. A further loss is refused.", verdict::redundancy(array)),
            left => format!(
                "Redundancy left: {left} now, {} after the member is marked faulty; {spares}.",
                left - 1
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::{healthy, rebuild};

    #[test]
    fn each_form_has_the_token_and_those_that_cost_redundancy_ask_for_the_name() {
        let mut array = healthy();
        array.name = "<tank>".into();
        let page = actions(&array, None, "t0ken");
        let forms: Vec<&str> = page.split("<form ").skip(1).collect();
        // Two kinds of scrub, replace and fail for each of four members, add, clear.
        assert_eq!(forms.len(), 2 + 4 * 2 + 2, "{page}");
        for form in &forms {
            assert!(form.contains("name=\"token\" value=\"t0ken\""), "{form}");
            assert!(form.starts_with("method=\"post\" action=\"act\""), "{form}");
            let is_fail = form.contains("value=\"fail\"");
            assert_eq!(form.contains("Type &lt;tank&gt; to confirm"), is_fail, "{form}");
        }
        assert!(!page.contains("<tank>") && !page.contains("http-equiv"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn a_running_scrub_can_be_stopped_and_an_interrupted_one_resumed() {
        let mut array = healthy();
        array.scrub_record.position_bytes = 1;
        let page = actions(&array, None, "");
        assert!(page.contains("value=\"resume\"") && !page.contains("value=\"stop\""), "{page}");
        let mut job = rebuild(None);
        job.kind = JobKind::Check;
        array.job = Some(job);
        let page = actions(&array, None, "");
        assert!(page.contains("value=\"stop\"") && !page.contains("value=\"check\""), "{page}");
    }

    #[test]
    fn an_outcome_has_the_words_of_the_control_api() {
        let refused = Outcome::Refused("tank: <no>".into(), Some("parapet status tank".into()));
        let page = actions(&healthy(), Some(&refused), "");
        assert!(page.contains("tank: &lt;no&gt;</p>"), "{page}");
        assert!(page.contains("<pre><code>parapet status tank</code></pre>"), "{page}");
        assert!(
            actions(&healthy(), Some(&Outcome::Done("is back".into())), "").contains("is back")
        );
    }
}
