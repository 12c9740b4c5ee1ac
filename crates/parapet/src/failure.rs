//! The reason why a command failed, and a remedy.
//!
//! Owns the list of failures, each with a stable id whose first digit is the exit status. Scripts
//! and users can distinguish them without parsing prose. Every failure has two parts: the error and
//! the remedy. Prints nothing.

use std::fmt;

/// Exit status of the process. Only `health` has its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A safety guard refused; nothing was changed.
    Refused = 3,
    /// The server does not answer, or denies permission.
    Unreachable = 4,
    /// There is no such array, member or file.
    Unknown = 5,
    /// The wait timed out; the job continues.
    TimedOut = 6,
}

macro_rules! failures {
    ($($name:ident $number:literal $exit:ident $meaning:literal)*) => {
        /// Id of a failure: `PPT-` and a number whose first digit is the exit status.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Id {
            $(#[doc = $meaning] $name,)*
        }

        impl Id {
            /// Every id with its meaning, for `parapet schema errors` and the manual.
            pub(crate) const ALL: &[(Id, &str)] = &[$((Id::$name, $meaning),)*];

            /// Returns the exit status of the id.
            pub(crate) fn exit(self) -> Exit {
                match self { $(Id::$name => Exit::$exit,)* }
            }

            /// Parses an id received from a server.
            pub(crate) fn parse(text: &str) -> Option<Id> {
                match text { $(concat!("PPT-", $number) => Some(Id::$name),)* _ => None }
            }
        }

        impl fmt::Display for Id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Id::$name => concat!("PPT-", $number),)* })
            }
        }
    };
}

failures! {
    Failed        "1001" Failed      "the operation failed"
    Input         "1002" Failed      "a file or device could not be read or written"
    NoRoom        "1003" Failed      "there is no room for a file"
    Socket        "1004" Failed      "a socket could not be opened"
    Tls           "1005" Failed      "a certificate or key is of no use"
    Verification  "1006" Failed      "the data read back differs from the data written"
    Internal      "1007" Failed      "Parapet contradicts itself"
    Usage         "2001" Usage       "the command line is wrong"
    Shape         "2002" Usage       "no array has this shape"
    Name          "2003" Usage       "a name is too long or has characters it must not have"
    Signature     "3001" Refused     "there is something on a disk that would be overwritten"
    Confirmation  "3002" Refused     "the plan was not confirmed"
    Busy          "3003" Refused     "a disk is in use"
    Same          "3004" Refused     "a disk was named twice"
    Foreign       "3005" Refused     "members do not belong together"
    WrongState    "3006" Refused     "the array is not in a state for this"
    Redundancy    "3007" Refused     "data would be lost, or left without redundancy"
    Running       "3008" Refused     "the array or its socket is in use by a server"
    Unreachable   "4001" Unreachable "no server answers"
    Denied        "4002" Unreachable "permission denied"
    NoArray       "5001" Unknown     "there is no such array"
    NoMember      "5002" Unknown     "the array has no such member"
    Missing       "5003" Unknown     "there is no such file or device"
    NoSuperblock  "5004" Unknown     "there is no superblock"
    TimedOut      "6001" TimedOut    "waited long enough; the job goes on"
}

/// A failure with message and remedy.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Its id.
    pub(crate) id: Id,
    /// The error: a sentence without a full stop.
    pub(crate) message: String,
    /// The remedy; where possible, a command.
    pub(crate) action: String,
}

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(id: Id, message: impl Into<String>, action: impl Into<String>) -> Failure {
        Failure { id, message: message.into(), action: action.into() }
    }

    /// Returns the exit status of the process.
    pub(crate) fn exit(&self) -> Exit {
        self.id.exit()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.action.is_empty() { Ok(()) } else { write!(f, "; {}", self.action) }
    }
}

/// Returns the command that frees a disk in use. It stops a Parapet server in order, never kills
/// it. A caller with the array's name substitutes it for NAME.
fn free_by(holder: &os::disk::Holder) -> String {
    let is_ours = |who: &str| who.contains("(parapet");
    match holder.who.as_str() {
        who if who.starts_with("this very") => "name it only once".into(),
        who if is_ours(who) => "parapet stop NAME, if it is served".into(),
        _ => match &holder.keep_by {
            None => format!("free it first: {}", holder.free_by),
            Some(keep_by) => format!("free it first: {}; {keep_by}", holder.free_by),
        },
    }
}

/// Converts an open error: each kind has its own exit status.
impl From<os::OpenError> for Failure {
    fn from(error: os::OpenError) -> Failure {
        use os::disk::OpenErrorKind as Kind;
        let (id, action) = match error.kind() {
            Kind::Missing => (Id::Missing, "check the path".into()),
            Kind::Exists => (Id::Signature, "choose another path, or use the file as it is".into()),
            Kind::Denied => (Id::Denied, "use an account that may, for example with sudo".into()),
            Kind::ReadOnly => (Id::Input, "mount it read-write; only to read: --read-only".into()),
            Kind::Immutable => {
                (Id::Input, "chattr -i lifts that; only to read: --read-only".into())
            }
            Kind::Busy(holders) if holders.is_empty() => {
                (Id::Busy, "find the process that uses it".into())
            }
            Kind::Busy(holders) => {
                let mut ways: Vec<String> = holders.iter().map(free_by).collect();
                ways.dedup();
                (Id::Busy, ways.join("; "))
            }
            Kind::NotADisk => (Id::Input, "name a regular file or a block device".into()),
            Kind::NoSpace(_) => (Id::NoRoom, "free some space, or choose another place".into()),
            Kind::NotDirect => (Id::Input, "leave direct access out".into()),
            Kind::Failed => (Id::Input, "see the system's log".into()),
        };
        Failure::new(id, error.to_string(), action)
    }
}

/// Converts an error of the operating system on this path.
pub(crate) fn of_path(path: &std::path::Path, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let (id, action) = match error.kind() {
        ErrorKind::NotFound => (Id::Missing, "check the path"),
        ErrorKind::PermissionDenied => {
            (Id::Denied, "use an account that may, for example with sudo")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (Id::NoRoom, "free some space"),
        _ => (Id::Input, "check the path and the file system"),
    };
    // For a bare kind, Rust supplies the description.
    let what = match error.kind() {
        ErrorKind::NotFound => "there is no such file or device".into(),
        _ => error.to_string(),
    };
    Failure::new(id, format!("{}: {what}", path.display()), action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digit_of_an_id_is_its_exit_status() {
        for &(id, meaning) in Id::ALL {
            let text = id.to_string();
            assert_eq!(text.as_bytes()[4] - b'0', id.exit() as u8, "{text}");
            assert_eq!(Id::parse(&text), Some(id));
            assert!(!meaning.is_empty());
        }
        assert_eq!(Id::parse("PPT-9999"), None);
    }
}
