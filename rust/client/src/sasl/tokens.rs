//! Tokens of OAUTHBEARER: kept while they are valid, asked for anew before they end.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::secret::Secret;

/// A token is asked for anew after this part of its life, as by Java's clients.
const REFRESH_PERCENT: u32 = 80;
/// How long after a failure the source is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A bearer token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// As it is sent.
    pub value: Secret,
    /// How long it is valid from now on; `None` for ever.
    pub lifetime: Option<Duration>,
    /// Of SASL (KIP-342).
    pub extensions: Vec<(String, String)>,
}

impl Token {
    /// Why it cannot be sent (RFC 6750 section 2.1, RFC 7628 section 3.1).
    fn mistake(&self) -> Option<&'static str> {
        let token = self.value.expose();
        let is_of_tokens = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
        if token.is_empty() || !token.chars().all(is_of_tokens) {
            return Some("it is empty, or has a space, an end of line or another such character");
        }
        let is_of_values = |c: char| c.is_ascii_graphic() || c == ' ';
        let can_be_sent = |(name, value): &(String, String)| {
            let is_name = name.chars().all(|c| c.is_ascii_alphabetic());
            is_name && !name.is_empty() && name != "auth" && value.chars().all(is_of_values)
        };
        match self.extensions.iter().all(can_be_sent) {
            true => None,
            false => Some("an extension's name or value has characters that SASL does not have"),
        }
    }
}

/// Where tokens come from.
pub trait TokenSource: Send + Sync {
    /// A new token. May block.
    ///
    /// # Errors
    /// A sentence for the user.
    fn token(&self) -> Result<Token, String>;

    /// Runs `work`, which may block, on another thread. False if there is none.
    fn elsewhere(&self, work: Box<dyn FnOnce() + Send>) -> bool;
}

/// The tokens of a client, for all its threads.
#[derive(Clone)]
pub struct Tokens(Arc<Shared>);

struct Shared {
    source: Box<dyn TokenSource>,
    state: Mutex<State>,
    /// Held while the source is asked, which it is by one thread at a time.
    asking: Mutex<()>,
}

#[derive(Default)]
struct State {
    kept: Option<Kept>,
    /// Another thread asks, or a failure is not long ago.
    refreshing_until: Option<Instant>,
    is_refreshing: bool,
}

#[derive(Clone)]
struct Kept {
    token: Token,
    refresh_at: Option<Instant>,
    ends_at: Option<Instant>,
}

impl Kept {
    fn is_fresh(&self, now: Instant) -> bool {
        self.refresh_at.is_none_or(|at| now < at)
    }

    fn is_valid(&self, now: Instant) -> bool {
        self.ends_at.is_none_or(|at| now < at)
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// Asks when the first token is needed.
    pub fn new(source: Box<dyn TokenSource>) -> Tokens {
        Tokens(Arc::new(Shared {
            source,
            state: Mutex::default(),
            asking: Mutex::default(),
        }))
    }

    /// A token that is valid. Blocks while the source is asked.
    ///
    /// # Errors
    /// The source's, if no valid token is left.
    pub(crate) fn wait(&self) -> Result<Token, String> {
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let _asking = lock(&self.0.asking);
        // Another thread may have asked meanwhile.
        if let Some(token) = self.fresh() {
            return Ok(token);
        }
        let asked_at = Instant::now();
        let found = self.0.source.token();
        let now = Instant::now();
        let mut state = lock(&self.0.state);
        match found {
            Ok(token) if token.lifetime.is_some_and(|left| left.is_zero()) => {
                Err("it has expired already".into())
            }
            Ok(token) => {
                if let Some(mistake) = token.mistake() {
                    return Err(mistake.into());
                }
                let until = |percent| Some(asked_at + token.lifetime? * percent / 100);
                state.kept = Some(Kept {
                    refresh_at: until(REFRESH_PERCENT),
                    ends_at: until(100),
                    token: token.clone(),
                });
                Ok(token)
            }
            Err(error) => match &state.kept {
                Some(kept) if kept.is_valid(now) => Ok(kept.token.clone()),
                _ => Err(error),
            },
        }
    }

    /// The token that is kept, if it is fresh. Else another thread asks for one.
    pub(crate) fn try_get(&self) -> Option<Token> {
        if let Some(token) = self.fresh() {
            return Some(token);
        }
        let now = Instant::now();
        let mut state = lock(&self.0.state);
        let is_left_alone = state.refreshing_until.is_some_and(|at| now < at);
        if state.is_refreshing || is_left_alone {
            return None;
        }
        state.is_refreshing = true;
        drop(state);
        let tokens = self.clone();
        let is_asked = self.0.source.elsewhere(Box::new(move || {
            tokens.wait().ok();
            lock(&tokens.0.state).refreshed();
        }));
        if !is_asked {
            lock(&self.0.state).refreshed();
        }
        None
    }

    fn fresh(&self) -> Option<Token> {
        let now = Instant::now();
        let state = lock(&self.0.state);
        let kept = state.kept.as_ref().filter(|kept| kept.is_fresh(now));
        kept.map(|kept| kept.token.clone())
    }
}

impl State {
    fn refreshed(&mut self) {
        self.is_refreshing = false;
        self.refreshing_until = Some(Instant::now() + RETRY_AFTER);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Gives numbered tokens; works elsewhere at once.
    struct Source {
        asked: Arc<AtomicUsize>,
        lifetime: Option<Duration>,
        fails_from: usize,
    }

    impl TokenSource for Source {
        fn token(&self) -> Result<Token, String> {
            let number = self.asked.fetch_add(1, Ordering::SeqCst);
            if number >= self.fails_from {
                return Err("no more".into());
            }
            Ok(Token {
                value: Secret::new(number.to_string()),
                lifetime: self.lifetime,
                extensions: Vec::new(),
            })
        }

        fn elsewhere(&self, work: Box<dyn FnOnce() + Send>) -> bool {
            work();
            true
        }
    }

    fn tokens(lifetime: Option<Duration>, fails_from: usize) -> (Tokens, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let source = Source {
            asked: Arc::clone(&asked),
            lifetime,
            fails_from,
        };
        (Tokens::new(Box::new(source)), asked)
    }

    #[test]
    fn a_fresh_token_is_used_again() {
        for lifetime in [None, Some(Duration::from_secs(3600))] {
            let (tokens, asked) = tokens(lifetime, 9);
            assert_eq!(tokens.wait().unwrap().value.expose(), "0");
            assert_eq!(tokens.wait().unwrap().value.expose(), "0");
            assert_eq!(tokens.try_get().unwrap().value.expose(), "0");
            assert_eq!(asked.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn a_token_of_no_life_is_refused() {
        let (tokens, _) = tokens(Some(Duration::ZERO), 9);
        assert!(tokens.wait().unwrap_err().contains("expired"));
    }

    #[test]
    fn a_token_that_cannot_be_sent_is_refused_before() {
        let token = |value: &str, extensions: &[(&str, &str)]| Token {
            value: Secret::new(value),
            lifetime: None,
            extensions: extensions
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        };
        assert_eq!(token("a.b-_~+/=", &[("x", "y z")]).mistake(), None);
        for value in ["", "a b", "a\n", "a\x01host=b"] {
            assert!(token(value, &[]).mistake().is_some(), "{value:?}");
        }
        for one in [("auth", "x"), ("", "x"), ("a=b", "x"), ("a", "x\x01")] {
            assert!(token("a", &[one]).mistake().is_some(), "{one:?}");
        }
    }

    #[test]
    fn an_old_token_is_asked_for_elsewhere() {
        let (tokens, asked) = tokens(Some(Duration::from_nanos(100)), 9);
        tokens.wait().unwrap();
        assert!(tokens.try_get().is_none());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // Not again at once.
        assert!(tokens.try_get().is_none());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_source_that_fails_is_named() {
        let (tokens, _) = tokens(None, 0);
        assert_eq!(tokens.wait().unwrap_err(), "no more");
    }
}
