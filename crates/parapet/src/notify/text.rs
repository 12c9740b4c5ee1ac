//! A message in words: one title, and lines for a mail or a phone.

use policy::alerts::Notice;

/// The name of this machine.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".into() } else { name.into() }
}

/// The array and the event, such as `tank: DegradedArray`.
pub(super) fn title(notice: &Notice) -> String {
    let event = &notice.event;
    let still = if notice.since.is_some() { "still " } else { "" };
    format!("{}: {still}{}", event.array, event.word)
}

/// What happened, how often, and since when.
pub(super) fn message(notice: &Notice) -> String {
    let message = &notice.event.message;
    match (notice.since, notice.count) {
        (Some(since), _) => format!("still since {since:.0}: {message}"),
        (None, 1) => message.clone(),
        (None, count) => format!("{message} (the last of {count} such events)"),
    }
}

/// The message, and what a reader needs beside it.
pub(super) fn lines(notice: &Notice) -> String {
    let event = &notice.event;
    let mut lines = vec![message(notice), String::new()];
    lines.push(format!("time    {:.0}", event.time));
    lines.push(format!("host    {}", host()));
    lines.push(format!("array   {} ({})", event.array, event.uuid));
    lines.extend(event.member.iter().map(|member| format!("member  {member}")));
    lines.push(format!("status  parapet status {}", event.array));
    match notice.lost {
        0 => {}
        1 => lines.push("1 earlier event was not delivered: parapet events".into()),
        lost => lines.push(format!("{lost} earlier events were not delivered: parapet events")),
    }
    lines.join("\n") + "\n"
}
