//! SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677), without channel binding.
//!
//! ```text
//! client-first   n,,n=USER,r=NONCE
//! server-first   r=NONCE+MORE,s=SALT,i=ITERATIONS
//! client-final   c=biws,r=NONCE+MORE,p=PROOF
//! server-final   v=SIGNATURE
//! ```
//! The signature shows that the server knows the password too: without it nobody is authenticated.
//! Names and passwords are not normalized (SASLprep), as with Kafka.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

use super::line;
use crate::secret::Secret;

/// The least that RFC 7677 allows: fewer would make a recorded exchange cheap to guess from.
const ITERATIONS_MIN: u32 = 4096;
/// More would let a server take this client's time: these are about a quarter of a second.
const ITERATIONS_MAX: u32 = 500_000;
const SALT_BYTES_MAX: usize = 1024;
const HEADER: &str = "n,,";

/// Of the mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// Waits for server-first.
#[derive(Debug)]
pub(crate) struct First {
    hash: Hash,
    password: Secret,
    nonce: String,
    bare: String,
}

/// Waits for server-final.
#[derive(Debug)]
pub(crate) struct Final {
    hash: Hash,
    server_key: Hidden,
    messages: Hidden,
}

/// Bytes that `Debug` does not show.
struct Hidden(Vec<u8>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[hidden]")
    }
}

impl First {
    /// The state, and client-first. The nonce is of printable characters without commas, and never
    /// used twice.
    pub fn new(hash: Hash, username: &str, password: Secret, nonce: String) -> (First, Vec<u8>) {
        let name = username.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={name},r={nonce}");
        let message = format!("{HEADER}{bare}");
        let first = First {
            hash,
            password,
            nonce,
            bare,
        };
        (first, message.into_bytes())
    }

    /// The next state, and client-final.
    ///
    /// # Errors
    /// What is wrong with server-first.
    pub fn answer(self, server_first: &[u8]) -> Result<(Final, Vec<u8>), String> {
        let text = text(server_first)?;
        let mut parts = text.splitn(3, ',');
        let nonce = attribute(parts.next(), "r=")?;
        let salt = attribute(parts.next(), "s=")?;
        let iterations = attribute(parts.next(), "i=")?;
        // Extensions behind it are optional by the RFC.
        let iterations = iterations.split(',').next().unwrap_or_default();
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err("its SCRAM answer is to another question".into());
        }
        let salt = BASE64.decode(salt).ok();
        let salt = salt.filter(|salt| (1..=SALT_BYTES_MAX).contains(&salt.len()));
        let salt = salt.ok_or("its SCRAM salt cannot be read")?;
        let count: u32 = iterations.parse().unwrap_or(0);
        let count = NonZeroU32::new(count)
            .filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&count.get()))
            .ok_or_else(|| {
                format!(
                    "it asks for {count} iterations of SCRAM; {ITERATIONS_MIN} to \
                     {ITERATIONS_MAX} are allowed"
                )
            })?;
        let algorithm = self.hash.hmac();
        let mut salted = vec![0; self.hash.digest().output_len()];
        let password = self.password.expose().as_bytes();
        pbkdf2::derive(self.hash.pbkdf2(), count, &salt, password, &mut salted);
        let salted = hmac::Key::new(algorithm, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let without_proof = format!("c={},r={nonce}", BASE64.encode(HEADER));
        let messages = format!("{},{text},{without_proof}", self.bare);
        let stored_key = hmac::Key::new(algorithm, stored_key.as_ref());
        let signature = hmac::sign(&stored_key, messages.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, mask)| key ^ mask).collect();
        let message = format!("{without_proof},p={}", BASE64.encode(proof));
        let last = Final {
            hash: self.hash,
            server_key: Hidden(hmac::sign(&salted, b"Server Key").as_ref().to_vec()),
            messages: Hidden(messages.into_bytes()),
        };
        Ok((last, message.into_bytes()))
    }
}

impl Final {
    /// Checks the server's signature.
    ///
    /// # Errors
    /// It is another one, or the server says what is wrong.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), String> {
        let text = text(server_final)?;
        let first = text.split(',').next().unwrap_or_default();
        if let Some(error) = first.strip_prefix("e=") {
            let error = line(error);
            return Err(format!(
                "it refuses sasl.username and sasl.password: {error}"
            ));
        }
        let signature = BASE64.decode(attribute(Some(first), "v=")?);
        let signature = signature.map_err(|_| "its SCRAM signature cannot be read")?;
        let key = hmac::Key::new(self.hash.hmac(), &self.server_key.0);
        hmac::verify(&key, &self.messages.0, &signature).map_err(|_| {
            "its SCRAM signature is wrong: it does not know sasl.password itself".to_owned()
        })
    }
}

fn text(message: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(message).map_err(|_| "its SCRAM message is no text".into())
}

fn attribute<'a>(part: Option<&'a str>, name: &str) -> Result<&'a str, String> {
    part.and_then(|part| part.strip_prefix(name))
        .ok_or_else(|| format!("its SCRAM message lacks {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn first(hash: Hash) -> First {
        let nonce = "rOprNGfwEbeRWgbNEkqO".to_owned();
        let (first, message) = First::new(hash, "user", Secret::new("pencil"), nonce);
        assert_eq!(message, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        first
    }

    #[test]
    fn the_exchange_of_rfc_7677_is_spoken() {
        let (last, message) = first(Hash::Sha256).answer(SERVER_FIRST.as_bytes()).unwrap();
        let wanted = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8(message).unwrap(), wanted);
        last.verify(SERVER_FINAL.as_bytes()).unwrap();
        assert!(!format!("{last:?}").contains("pencil"));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_refused() {
        let (last, _) = first(Hash::Sha256).answer(SERVER_FIRST.as_bytes()).unwrap();
        for (message, wanted) in [
            ("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "wrong"),
            ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95A==", "wrong"),
            ("v=", "wrong"),
            ("v=!", "cannot be read"),
            ("", "lacks v="),
            ("e=invalid-proof", "invalid-proof"),
        ] {
            let error = last.verify(message.as_bytes()).unwrap_err();
            assert!(error.contains(wanted), "{message}: {error}");
        }
    }

    #[test]
    fn few_and_many_iterations_are_refused() {
        for (count, is_allowed) in [
            ("4096", true),
            ("4095", false),
            ("0", false),
            ("500001", false),
            ("99999999999", false),
            ("x", false),
        ] {
            let message = SERVER_FIRST.replace("i=4096", &format!("i={count}"));
            let found = first(Hash::Sha512).answer(message.as_bytes());
            assert_eq!(found.is_ok(), is_allowed, "{count}");
        }
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        for message in [
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=xOprNGfwEbeRWgbNEkqOmore,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "m=1,r=rOprNGfwEbeRWgbNEkqOmore,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOmore,s=,i=4096",
            "",
        ] {
            assert!(first(Hash::Sha256).answer(message.as_bytes()).is_err());
        }
    }

    #[test]
    fn commas_and_equal_signs_of_a_name_are_escaped() {
        let (_, message) = First::new(Hash::Sha256, "a=b,c", Secret::default(), "N".into());
        assert_eq!(message, b"n,,n=a=3Db=2Cc,r=N");
    }
}
