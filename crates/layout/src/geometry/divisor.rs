//! Division by a number that is known when the geometry is built.
//!
//! Owns the choice between a shift, one multiplication and a real division. Never approximates: for
//! every numerator up to the limit given at construction the quotient is exact.

/// Divides by one fixed number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Divisor {
    divisor: u64,
    shift: u32,
    method: Method,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    /// The divisor is 2^shift.
    Shift,
    /// The divisor is 2^shift · odd, and `magic` = ⌊2⁶⁴ / odd⌋ + 1.
    Multiply { magic: u64 },
    /// Numerators are too large for 64 bits of magic.
    Divide,
}

impl Divisor {
    /// Divides numerators 0..=`limit` by `divisor`, which is not 0.
    ///
    /// With m = ⌊2⁶⁴/d⌋ + 1, m·d = 2⁶⁴ + e where 0 < e ≤ d, so n·m/2⁶⁴ = n/d + n·e/(d·2⁶⁴). That
    /// has the same integer part as n/d while the excess is below 1/d, which n·d < 2⁶⁴ guarantees
    /// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
    pub(super) const fn new(divisor: u64, limit: u64) -> Divisor {
        assert!(divisor > 0);
        let shift = divisor.trailing_zeros();
        let odd = divisor >> shift;
        let method = if odd == 1 {
            Method::Shift
        } else if (limit >> shift).checked_mul(odd).is_some() {
            // odd ≥ 3 does not divide 2⁶⁴, so ⌊(2⁶⁴ − 1)/odd⌋ = ⌊2⁶⁴/odd⌋.
            Method::Multiply { magic: u64::MAX / odd + 1 }
        } else {
            Method::Divide
        };
        Divisor { divisor, shift, method }
    }

    /// The number divided by.
    pub(super) const fn get(self) -> u64 {
        self.divisor
    }

    /// `number` / divisor.
    pub(super) const fn quotient(self, number: u64) -> u64 {
        match self.method {
            Method::Shift => number >> self.shift,
            Method::Multiply { magic } => {
                (((number >> self.shift) as u128 * magic as u128) >> 64) as u64
            }
            Method::Divide => number / self.divisor,
        }
    }

    /// `number` / divisor and the remainder.
    pub(super) const fn split(self, number: u64) -> (u64, u64) {
        let quotient = self.quotient(number);
        (quotient, number - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::{Divisor, Method};

    #[test]
    fn exact_up_to_the_limit() {
        let limits = [1000, u64::MAX >> 30, u64::MAX >> 9, u64::MAX];
        for divisor in (1..=1000).chain([4096, 6144, 12_288, 3 << 30, (1 << 40) - 1]) {
            for limit in limits {
                let by = Divisor::new(divisor, limit);
                assert_eq!(by.get(), divisor);
                // Quotients change at multiples: look at both sides of several, and at the limit.
                let multiples = [1, 2, 3, limit / divisor / 2, limit / divisor];
                let near = multiples.iter().flat_map(|m| {
                    let at = m.saturating_mul(divisor);
                    [at.saturating_sub(1), at, at.saturating_add(1)]
                });
                for number in near.chain([0, limit]).filter(|n| *n <= limit) {
                    assert_eq!(by.split(number), (number / divisor, number % divisor));
                }
            }
        }
    }

    #[test]
    fn the_cheap_way_where_it_is_exact() {
        assert_eq!(Divisor::new(64 << 10, u64::MAX).method, Method::Shift);
        assert!(matches!(Divisor::new(127, u64::MAX >> 9).method, Method::Multiply { .. }));
        assert!(matches!(Divisor::new(12_288, i64::MAX as u64).method, Method::Multiply { .. }));
        assert_eq!(Divisor::new(3, u64::MAX).method, Method::Divide);
    }
}
