//! A stream of random numbers: splitmix64, the mixer of [`sim::rng`].

/// The step of the state, as in [`sim::rng::mix`].
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number.
pub(crate) fn next(state: &mut u64) -> u64 {
    let drawn = sim::rng::mix(*state);
    *state = state.wrapping_add(STEP);
    drawn
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_stream_is_that_of_splitmix64() {
        let mut state = 0;
        let drawn = [(); 3].map(|()| super::next(&mut state));
        // The reference implementation's first numbers from 0.
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
