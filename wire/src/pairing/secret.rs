//! The one-time code, and what is proved with it.

use std::fmt;

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::Fingerprint;

/// Crockford's base 32: no I, L, O and U, which are misread.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// 100 bits: whoever hears a proof and guesses cannot try them all, however fast.
const LENGTH: usize = 20;
const GROUP: usize = 4;

/// A code that a person carries from the sandbox to the harness. Its text, five
/// groups of four, is shown by [`Code::reveal`] only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Code([u8; LENGTH]);

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(…)")
    }
}

impl Code {
    /// A new one.
    pub fn random() -> Self {
        let bytes: [u8; LENGTH] = rand::random();
        Self(bytes.map(|byte| ALPHABET[usize::from(byte % 32)]))
    }

    /// As a person types it: in any case, with hyphens and spaces anywhere, and with
    /// the letters that look like digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut code = [0; LENGTH];
        let mut length = 0;
        for byte in text.bytes() {
            let byte = match byte.to_ascii_uppercase() {
                b'-' | b' ' | b'\t' | b'\r' | b'\n' => continue,
                b'O' => b'0',
                b'I' | b'L' => b'1',
                other => other,
            };
            if !ALPHABET.contains(&byte) || length == LENGTH {
                return None;
            }
            code[length] = byte;
            length += 1;
        }
        (length == LENGTH).then_some(Self(code))
    }

    /// Its text, for the person who carries it.
    pub fn reveal(&self) -> String {
        let groups: Vec<_> = self
            .0
            .chunks(GROUP)
            .map(|group| String::from_utf8_lossy(group))
            .collect();
        groups.join("-")
    }

    /// What the harness proves: that it knows the code and sees these certificates.
    pub fn harness_proof(&self, harness: Fingerprint, sandbox: Fingerprint) -> Proof {
        self.proof(b"mooring-pair/1 harness", harness, sandbox)
    }

    /// The same of the sandbox.
    pub fn sandbox_proof(&self, harness: Fingerprint, sandbox: Fingerprint) -> Proof {
        self.proof(b"mooring-pair/1 sandbox", harness, sandbox)
    }

    fn proof(&self, who: &[u8], harness: Fingerprint, sandbox: Fingerprint) -> Proof {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut context = hmac::Context::with_key(&key);
        for part in [who, &harness.0, &sandbox.0] {
            context.update(part);
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.sign().as_ref());
        Proof(bytes)
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.reveal()
    }
}

impl TryFrom<String> for Code {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a code has 20 letters and digits")
    }
}

/// An HMAC-SHA256. Its text is 64 hexadecimal digits.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Proof([u8; 32]);

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(…)")
    }
}

impl PartialEq for Proof {
    /// In a time that does not tell where they differ.
    fn eq(&self, other: &Self) -> bool {
        let differ = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

impl Eq for Proof {}

impl From<Proof> for String {
    fn from(proof: Proof) -> Self {
        proof.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Proof {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        digits(&text)
            .map(Self)
            .ok_or("a proof has 64 hexadecimal digits")
    }
}

/// 32 bytes from their 64 hexadecimal digits.
pub(super) fn digits(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
