//! Prompts of a wanted length that share no beginning.
//!
//! A server that keeps the last prompts would find a repeated beginning in its cache and skip the
//! work that is measured. So each prompt begins with another word than the last 256 did, and
//! with another pair of words than any before.
//!
//! The words are short and common: one token each for most tokenizers, and exactly one for
//! the simulated server. How many tokens a server adds around them (its chat template) is learnt
//! from its own count, see [`Prompts::learn`].

use crate::plan::shuffle;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

const WORDS: &str = "able above across act add after again age air all almost along also always among \
and angle animal answer any apple arm army art ask away baby back bad ball band bank bar base basic \
bath bear beat bed begin bell best better big bird black blood blow blue board boat body bone book \
born both bottom box boy brand bread break bring broad brother brown build busy buy call camp can \
car card care carry case cat catch cause cell center chair chance change chart check chief child \
choose circle city claim class clean clear climb clock close cloud coast coat cold collect color \
come common cook cool copy corn corner cost cotton count country course cover cow create crop \
cross crowd cry current cut dance danger dark day dead deal dear death decide deep design desk \
detail die differ direct doctor dog dollar door double down draw dream dress drink drive drop dry \
duck each early earth ease east eat edge effect egg eight electric else end enemy energy engine \
enough enter equal even event every exact except excite exercise expect eye face fact fair fall \
family famous far farm fast fat father favor fear feed feel feet fell few field fight figure fill \
final find fine finger finish fire first fish fit five flat floor flow flower fly follow food foot \
for force forest form forward found four free fresh friend from front fruit full fun game garden";

/// Tokens around the words of a chat until a server has told its own count: the simulated
/// server's template.
const CHAT_OVERHEAD: usize = 4;

/// Makes prompts.
pub struct Prompts {
    words: Vec<&'static str>,
    rng: ChaCha12Rng,
    made: usize,
    overhead: usize,
    /// Words that make a length, where a server's count has taught it.
    learnt: BTreeMap<u32, usize>,
}

impl Prompts {
    /// Prompts that depend on the seed only; `chat` says whether a template surrounds them.
    pub fn new(seed: u64, chat: bool) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut words: Vec<&str> = WORDS.split_whitespace().collect();
        words.sort_unstable();
        words.dedup();
        shuffle(&mut words, &mut rng);
        let overhead = if chat { CHAT_OVERHEAD } else { 0 };
        Prompts { words, rng, made: 0, overhead, learnt: BTreeMap::new() }
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

    /// Learns from the server's count of a prompt that should have had `wanted` tokens; true if
    /// the next one of this length will be another number of words.
    pub fn learn(&mut self, wanted: u32, counted: u32) -> bool {
        let count = self.count(wanted);
        let better = (count as i64 + i64::from(wanted) - i64::from(counted)).max(1) as usize;
        self.learnt.insert(wanted, better);
        better != count
    }

    fn count(&self, tokens: u32) -> usize {
        let learnt = self.learnt.get(&tokens).copied();
        learnt.unwrap_or((tokens as usize).saturating_sub(self.overhead)).max(1)
    }
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
        assert!(all.windows(200).all(|w| !w[1..].contains(&w[0])));
        let pairs: std::collections::BTreeSet<_> = firsts(2).collect();
        assert_eq!(pairs.len(), made.len());
        assert!(WORDS.split_whitespace().all(|word| word.len() <= 16));
    }

    #[test]
    fn a_server_with_another_template_is_learnt() {
        let mut prompts = Prompts::new(3, true);
        assert_eq!(prompts.next(16).split(' ').count(), 12);
        assert!(prompts.learn(16, 21));
        assert_eq!(prompts.next(16).split(' ').count(), 7);
        assert!(!prompts.learn(16, 16));
        assert!(prompts.learn(16, 40)); // a template that leaves no room keeps one word
        assert_eq!(prompts.next(16).split(' ').count(), 1);
        assert_eq!(prompts.next(64).split(' ').count(), 60);
    }

    proptest! {
        #[test]
        fn words_and_template_make_the_length(tokens in 5u32..3000, seed in 0u64..9) {
            let words = |chat| Prompts::new(seed, chat).next(tokens).split(' ').count() as u32;
            prop_assert_eq!((words(true), words(false)), (tokens - 4, tokens));
        }
    }
}
