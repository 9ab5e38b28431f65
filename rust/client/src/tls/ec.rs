//! Elliptic-curve keys as Java writes them: without the public key, which RFC 5915 allows and *ring*
//! does not.
//!
//! ```text
//! PrivateKeyInfo  SEQUENCE { INTEGER 0, AlgorithmIdentifier, OCTET STRING { ECPrivateKey } }
//! ECPrivateKey    SEQUENCE { INTEGER 1, OCTET STRING key, [0] curve, [1] BIT STRING public key }
//! ```

use pkcs8::der::Encode;
use pkcs8::{ObjectIdentifier, PrivateKeyInfo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ParsedCertificate;

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
const BIT_STRING: u8 = 0x03;
const PUBLIC_KEY: u8 = 0xa1;
const VERSION_0: [u8; 3] = [2, 1, 0];
const VERSION_1: [u8; 3] = [2, 1, 1];
const UNCOMPRESSED: u8 = 4;

/// The same key with the public one, which its certificate has. `None` if it has it already, or is
/// of another kind.
pub fn with_public_key(
    key: &PrivateKeyDer<'_>,
    certificate: &CertificateDer<'_>,
) -> Option<PrivateKeyDer<'static>> {
    let PrivateKeyDer::Pkcs8(der) = key else {
        return None;
    };
    let info = PrivateKeyInfo::try_from(der.secret_pkcs8_der()).ok()?;
    if info.algorithm.oid != EC_PUBLIC_KEY {
        return None;
    }
    let secret = lone_secret(info.private_key)?;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let public = parsed.subject_public_key_info();
    let point = public.len().checked_sub(1 + 2 * secret.len())?;
    let point = public
        .get(point..)
        .filter(|point| point[0] == UNCOMPRESSED)?;
    let bits = element(BIT_STRING, &[&[0], point]);
    let public = element(PUBLIC_KEY, &[&bits]);
    let secret = element(OCTET_STRING, &[secret]);
    let ec = element(SEQUENCE, &[&VERSION_1, &secret, &public]);
    let algorithm = info.algorithm.to_der().ok()?;
    let ec = element(OCTET_STRING, &[&ec]);
    let whole = element(SEQUENCE, &[&VERSION_0, &algorithm, &ec]);
    Some(PrivatePkcs8KeyDer::from(whole).into())
}

/// The secret of an ECPrivateKey that has no public key.
fn lone_secret(ec: &[u8]) -> Option<&[u8]> {
    // Short enough for lengths of one byte.
    let [SEQUENCE, len, rest @ ..] = ec else {
        return None;
    };
    let rest = rest.strip_prefix(&VERSION_1)?;
    let [OCTET_STRING, secret_len, rest @ ..] = rest else {
        return None;
    };
    let (secret, rest) = rest.split_at_checked(usize::from(*secret_len))?;
    let is_whole = usize::from(*len) == ec.len() - 2;
    (is_whole && !rest.contains(&PUBLIC_KEY)).then_some(secret)
}

/// A DER element. Its content has less than 64 KiB.
fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match len {
        0..128 => out.push(len as u8),
        128..256 => out.extend([0x81, len as u8]),
        _ => out.extend([0x82, (len >> 8) as u8, len as u8]),
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};

    use super::*;

    #[test]
    fn lengths_are_written_as_der_does() {
        for (len, head) in [(5, vec![4, 5]), (200, vec![4, 0x81, 200])] {
            let content = vec![7; len];
            assert_eq!(element(4, &[&content]), [head, content].concat());
        }
        assert_eq!(element(4, &[&[0; 300]])[..4], [4, 0x82, 1, 44]);
    }

    #[test]
    fn a_key_that_has_its_public_key_stays() {
        let algorithm = &ECDSA_P384_SHA384_ASN1_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let info = PrivateKeyInfo::try_from(made.as_ref()).unwrap();
        assert_eq!(lone_secret(info.private_key), None);
        let secret = [9; 48];
        let lone = element(SEQUENCE, &[&VERSION_1, &element(OCTET_STRING, &[&secret])]);
        assert_eq!(lone_secret(&lone), Some(&secret[..]));
        assert_eq!(lone_secret(&lone[..20]), None);
    }
}
