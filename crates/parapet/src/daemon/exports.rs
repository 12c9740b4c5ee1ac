//! The exports of a server, added and removed with its arrays.

use std::cell::RefCell;
use std::rc::Rc;

use net::nbd::{Client, Denial, Export, Exports};

use super::Served;

/// The current exports, each with its array.
#[derive(Default)]
pub(super) struct Shown {
    exports: RefCell<Vec<(String, Rc<Export>)>>,
    /// The export of clients that name none. It never changes to another array after a stop or a
    /// failed start: the client would overwrite the wrong data.
    default: RefCell<Option<String>>,
}

impl Shown {
    /// Adds an export.
    pub(super) fn add(&self, uuid: &str, export: Export, is_default: bool) {
        if is_default {
            self.default.replace(Some(uuid.into()));
        }
        self.exports.borrow_mut().push((uuid.into(), Rc::new(export)));
    }

    /// Removes the exports of this array and closes their connections. Completes when the last
    /// connection has ended.
    pub(super) fn retire(&self, gone: &str) -> impl Future<Output = ()> + 'static {
        let mut exports = self.exports.borrow_mut();
        let gone = exports.extract_if(.., |(uuid, _)| uuid == gone);
        let leaving: Vec<_> = gone.map(|(_, export)| export.retire()).collect();
        async move {
            for farewell in leaving {
                farewell.await;
            }
        }
    }

    /// Returns the export name of this array.
    pub(super) fn name_of(&self, served: &Served) -> Option<String> {
        let exports = self.exports.borrow();
        let found = exports.iter().find(|(uuid, _)| uuid == served.uuid());
        found.map(|(_, export)| export.name().to_owned())
    }

    /// Counts the connections that use the export of this array, on all threads.
    pub(super) fn clients_of(&self, served: &Served) -> usize {
        let exports = self.exports.borrow();
        let found = exports.iter().find(|(uuid, _)| uuid == served.uuid());
        found.map_or(0, |(_, export)| export.clients())
    }

    /// Returns true if an export has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.exports.borrow().iter().any(|(_, export)| export.name() == name)
    }
}

impl Exports for Shown {
    fn list(&self, _client: &Client, each: &mut dyn FnMut(&str, &str)) {
        let exports = self.exports.borrow();
        exports.iter().for_each(|(_, export)| each(export.name(), export.description()));
    }

    fn find(&self, name: &str, _client: &Client) -> Result<Rc<Export>, Denial> {
        let exports = self.exports.borrow();
        let found = exports.iter().find(|(_, export)| export.name() == name);
        let default = self.default.borrow();
        let is_default = |uuid: &str| name.is_empty() && default.as_deref() == Some(uuid);
        let default = || exports.iter().find(|(uuid, _)| is_default(uuid));
        let (_, export) = found.or_else(default).ok_or(Denial::Unknown)?;
        Ok(Rc::clone(export))
    }
}
