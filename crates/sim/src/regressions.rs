//! Every seed that ever failed, with its cause: `seeds.txt` beside the sources.
//!
//! A seed's run changes with the code that draws from it. The list is kept all the same: it is
//! short, and a former failure is a good place to look again.

/// The list: `SEED [OPTIONS] # cause`.
const LIST: &str = include_str!("../seeds.txt");

/// The command line of each, without its cause.
pub fn all() -> impl Iterator<Item = Vec<String>> {
    let lines = LIST.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words = lines.map(|line| line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    words.filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_line_is_a_seed_and_its_cause() {
        for line in super::LIST.lines().filter(|line| !line.starts_with('#')) {
            let (words, what) = line.split_once('#').expect("the command reports its findings");
            assert!(
                words.split_whitespace().next().is_some_and(|word| word.parse::<u64>().is_ok())
            );
            assert!(what.trim().len() > 10, "{line}");
        }
        assert!(super::all().count() > 10);
    }
}
