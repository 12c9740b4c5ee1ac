//! The operations in flight on a disk, by number, in the order of submission.

use std::collections::VecDeque;

use super::Flight;

/// See the module's description. Most complete soon, and about in order: so a queue with gaps.
#[derive(Default)]
pub(super) struct Flights {
    /// The number of the first place.
    first: u64,
    /// Empty where one has ended; the first place is never empty.
    places: VecDeque<Option<Flight>>,
}

impl Flights {
    /// The number that the next one will have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    /// The oldest one's; if there is none, the next one's.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn push(&mut self, flight: Flight) {
        self.places.push_back(Some(flight));
    }

    /// Takes this one out, if it is still there.
    pub(super) fn remove(&mut self, number: u64) -> Option<Flight> {
        let place = number.checked_sub(self.first)?;
        let flight = self.places.get_mut(place as usize)?.take();
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        flight
    }

    /// Takes out all.
    pub(super) fn take(&mut self) -> Vec<Flight> {
        self.first = self.next();
        self.places.drain(..).flatten().collect()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let places = (self.first..).zip(&self.places);
        places.filter(|(_, flight)| flight.is_some()).map(|(number, _)| number)
    }

    /// This many versions more of the medium are durable, or lost: they need no cover.
    pub(super) fn cover_less(&mut self, taken: usize) {
        for flight in self.places.iter_mut().flatten() {
            flight.covers = flight.covers.saturating_sub(taken);
        }
    }
}
