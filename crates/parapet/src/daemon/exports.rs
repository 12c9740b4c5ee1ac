//! The exports of a server: they come and go with its arrays.

use std::cell::RefCell;
use std::rc::Rc;

use net::nbd::{Client, Denial, Export, Exports};

use super::Served;

/// What is exported now, with the array behind it; the first one is the default.
#[derive(Default)]
pub(super) struct Shown {
    exports: RefCell<Vec<(String, Rc<Export>)>>,
}

impl Shown {
    /// Shows one more.
    pub(super) fn add(&self, uuid: &str, export: Export) {
        self.exports.borrow_mut().push((uuid.into(), Rc::new(export)));
    }

    /// Shows this array no more. Clients that use it keep it until they go.
    pub(super) fn remove(&self, gone: &str) {
        self.exports.borrow_mut().retain(|(uuid, _)| uuid != gone);
    }

    /// The name that clients know this array by.
    pub(super) fn name_of(&self, served: &Served) -> Option<String> {
        let exports = self.exports.borrow();
        let found = exports.iter().find(|(uuid, _)| uuid == served.uuid());
        found.map(|(_, export)| export.name().to_owned())
    }

    /// True if there is one of this name.
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
        let default = || exports.first().filter(|_| name.is_empty());
        let (_, export) = found.or_else(default).ok_or(Denial::Unknown)?;
        Ok(Rc::clone(export))
    }
}
