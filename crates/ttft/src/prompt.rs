//! Prompts of a wanted length that share no beginning.
//!
//! A server that keeps the last prompts would find a repeated beginning in its cache and skip the
//! work that is measured. So each prompt begins with another word than the 150 before it, and
//! with another pair of words than any before.
//!
//! The words are short and common: one token each for most tokenizers, and exactly one for
//! the simulated server. How many tokens a server adds around them (its chat template) is learnt
//! from its own count, see [`Prompts::learn`].

use crate::plan::shuffle;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const WORDS: &str = "the of and to in a is that for it as was with be by on not he his but at are this have \
from or had an they which one you were all her she there would their we him been has when who will no more \
if out so up said what its about than into them can only other time new some could these two may first then \
do any like my now over such our man me even most made after also did many off before must well back through \
years where much your way down should because long each just state people those too how little good world \
make very year still see work life here city water light house night three under last right old great might \
came same since against used take himself few place while found home small every part went never another \
again away both between own high end left men head once number hand name however against days got point \
during without";

/// Tokens around the words of a chat until a server has told its own count: the simulated
/// server's template.
const CHAT_OVERHEAD: f64 = 4.0;

/// Makes prompts.
pub struct Prompts {
    words: Vec<&'static str>,
    rng: ChaCha12Rng,
    made: usize,
    overhead: f64,
    per_word: f64,
    /// Words of a prompt and the server's count of it.
    seen: Vec<(f64, f64)>,
}

impl Prompts {
    /// Prompts that depend on the seed only; `chat` says whether a template surrounds them.
    pub fn new(seed: u64, chat: bool) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut words: Vec<&str> = WORDS.split_whitespace().collect();
        words.sort_unstable();
        words.dedup();
        shuffle(&mut words, &mut rng);
        let overhead = if chat { CHAT_OVERHEAD } else { 0.0 };
        Prompts { words, rng, made: 0, overhead, per_word: 1.0, seen: Vec::new() }
    }

    /// A prompt that should have `tokens` tokens; at least one word.
    pub fn next(&mut self, tokens: u32) -> String {
        let count = self.count(tokens);
        let n = self.words.len();
        let (first, second) = (self.made % n, self.made / n % n);
        self.made += 1;
        let mut prompt = String::with_capacity(count * 6);
        prompt.push_str(self.words[first]);
        for i in 1..count {
            let word = if i == 1 { second } else { (self.rng.next_u64() % n as u64) as usize };
            prompt.push(' ');
            prompt.push_str(self.words[word]);
        }
        prompt
    }

    /// Learns from the server's count of a prompt of the length `tokens`; true if the next one will
    /// be another number of words.
    ///
    /// Counts are taken to be a line over the number of words: the template is where it begins,
    /// tokens a word are its slope.
    pub fn learn(&mut self, tokens: u32, counted: u32) -> bool {
        let before = self.count(tokens);
        self.seen.push((before as f64, f64::from(counted)));
        match line(&self.seen) {
            Some((overhead, per_word)) => {
                (self.overhead, self.per_word) = (overhead.max(0.0), per_word.max(0.5));
            }
            None => {
                let words = f64::from(counted) - self.overhead;
                self.per_word = (words / before as f64).max(1.0);
            }
        }
        self.count(tokens) != before
    }

    /// Words of a prompt of so many tokens.
    fn count(&self, tokens: u32) -> usize {
        let words = (f64::from(tokens) - self.overhead) / self.per_word;
        words.round().max(1.0) as usize
    }
}

/// The least-squares line through points: where it begins, and its slope; `None` if they don't
/// tell.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
    (spread > 0.0).then_some((y - slope * x, slope))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn beginnings_differ() {
        let mut prompts = Prompts::new(3, true);
        let made: Vec<String> = (0..1000).map(|_| prompts.next(16)).collect();
        let firsts = |n: usize| made.iter().map(move |p| p.split(' ').take(n).collect::<Vec<_>>());
        let all: Vec<_> = firsts(1).collect();
        assert!(all.windows(150).all(|w| !w[1..].contains(&w[0])));
        let pairs: std::collections::BTreeSet<_> = firsts(2).collect();
        assert_eq!(pairs.len(), made.len());
        assert!(WORDS.split_whitespace().all(|word| word.len() <= 16));
    }

    /// Teaches prompts by a server's counts, as a bench does; the last count of each length.
    fn taught(lengths: &[u32], overhead: f64, per_word: f64) -> Vec<u32> {
        let mut prompts = Prompts::new(3, true);
        let mut last = Vec::new();
        for tokens in lengths {
            let mut counted = 0;
            for _ in 0..4 {
                let words = prompts.next(*tokens).split(' ').count() as f64;
                counted = (words * per_word + overhead).round() as u32;
                if !prompts.learn(*tokens, counted) {
                    break;
                }
            }
            last.push(counted);
        }
        last
    }

    #[test]
    fn a_server_with_another_tokenizer_is_learnt() {
        assert_eq!(taught(&[16, 128], 4.0, 1.0), [16, 128]); // the simulated one
        assert_eq!(taught(&[64, 128], 36.0, 1.0), [64, 128]);
        // A template that leaves no room keeps one word, and longer prompts are right all the same.
        assert_eq!(taught(&[16, 128], 36.0, 1.0), [37, 128]);
        for counted in taught(&[512, 1024], 9.0, 3.4).iter().zip([512u32, 1024]) {
            assert!(counted.0.abs_diff(counted.1) <= 2, "{counted:?}");
        }
    }

    proptest! {
        #[test]
        fn words_and_template_make_the_length(tokens in 5u32..3000, seed in 0u64..9) {
            let words = |chat| Prompts::new(seed, chat).next(tokens).split(' ').count() as u32;
            prop_assert_eq!((words(true), words(false)), (tokens - 4, tokens));
        }
    }
}
