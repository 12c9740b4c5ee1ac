//! An array of modelled disks, made and started as the program does it: `metadata` creates and
//! assembles it, `array` runs it.

use std::cell::Cell;
use std::rc::Rc;

use array::{Array, Host};
use io::Disk;
use metadata::assemble::{Candidate, Options, assemble};
use metadata::commit::Random;
use metadata::create::{NewArray, create};

use crate::world::{Core, World};

/// Creates the array on these disks of zeros, and runs it on a core of the world.
///
/// # Errors
/// As [`create`] and [`assemble`].
pub async fn start(
    world: &World,
    core: Core,
    disks: &[Rc<dyn Disk>],
    new: &NewArray,
    host: &Host,
) -> metadata::Result<Array> {
    let clock = world.dyn_clock();
    let candidates = || -> Vec<Candidate> {
        let named = disks.iter().enumerate();
        named.map(|(index, disk)| Candidate::new(Rc::clone(disk), format!("disk{index}"))).collect()
    };
    let new = NewArray { zeroed: true, ..new.clone() };
    create(&new, candidates(), &clock, &*random()).await?;
    let assembly = assemble(candidates(), &Options::default(), clock, random()).await?;
    let array = Array::start(assembly, host);
    world.spawn(core, array.run());
    Ok(array)
}

/// Bytes for identifiers: the same ones each time.
fn random() -> Random {
    let state = Rc::new(Cell::new(1));
    Rc::new(move |bytes: &mut [u8]| {
        let mut next = state.get();
        bytes.iter_mut().for_each(|byte| *byte = (random::next(&mut next) >> 56) as u8);
        state.set(next);
    })
}

#[cfg(test)]
mod tests;
