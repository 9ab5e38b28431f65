//! TLS: whom to trust, who the client is, and what a failure means.

mod ec;
pub(crate) mod stream;

use std::fmt;
use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use pkcs8::EncryptedPrivateKeyInfo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::error::{ClientError, Result};
use crate::secret::Secret;

const ENCRYPTED_BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_END: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// PEM text, with where it comes from for messages.
#[derive(Clone, Debug)]
pub struct Pem {
    /// An option's name, and a file's.
    pub source: String,
    /// The text.
    pub text: Secret,
}

/// What TLS needs.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Certificates to trust; `None` for the system's.
    pub roots: Option<Pem>,
    /// The client's certificate with those up to its issuer, and its key.
    pub identity: Option<(Pem, Pem)>,
    /// Of an encrypted key.
    pub key_password: Option<Secret>,
    /// Whether a broker's certificate must have the name by which it is reached.
    pub checks_name: bool,
}

/// TLS as all connections of a client speak it.
#[derive(Clone)]
pub struct Tls(Arc<rustls::ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// `Config`, with the source of what cannot be used.
    pub fn new(settings: &TlsSettings) -> Result<Tls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(match &settings.roots {
            Some(pem) => given_roots(pem)?,
            None => system_roots()?,
        });
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(config)?;
        let verifier: Arc<dyn ServerCertVerifier> = match settings.checks_name {
            true => verifier,
            false => Arc::new(AnyName(verifier)),
        };
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(config)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let made = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let source = &chain.source;
                let chain = certificates(chain)?;
                let key = private_key(key, settings.key_password.as_ref())?;
                let key = ec::with_public_key(&key, &chain[0]).unwrap_or(key);
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unusable(source, &error.to_string()))?
            }
        };
        Ok(Tls(Arc::new(made)))
    }

    fn connection(&self, host: &str) -> Result<rustls::ClientConnection> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ClientError::Config(format!("'{host}' is no name of a server for TLS")))?;
        rustls::ClientConnection::new(Arc::clone(&self.0), name).map_err(config)
    }
}

fn config(error: impl fmt::Display) -> ClientError {
    ClientError::Config(format!("TLS cannot be set up: {error}"))
}

fn unusable(source: &str, reason: &str) -> ClientError {
    ClientError::Config(format!("{source}: {reason}"))
}

fn given_roots(pem: &Pem) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(&pem.source, &error.to_string()))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(ClientError::Config(
            "the system has no certificates to trust: give ssl.ca.location".into(),
        )),
        false => Ok(roots),
    }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem.text.expose().as_bytes()).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unusable(&pem.source, "it has no certificate in PEM")),
        Ok(all) => Ok(all),
        // Its error may quote the text.
        Err(_) => Err(unusable(&pem.source, "its PEM cannot be read")),
    }
}

fn private_key(pem: &Pem, password: Option<&Secret>) -> Result<PrivateKeyDer<'static>> {
    let text = pem.text.expose();
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        let reason = "the key is encrypted as OpenSSL did before 1.0: convert it with openssl pkcs8 \
                      -topk8 -in OLD -out NEW";
        return Err(unusable(&pem.source, reason));
    }
    let Some(at) = text.find(ENCRYPTED_BEGIN) else {
        return PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|_| unusable(&pem.source, "it has no private key in PEM"));
    };
    let Some(password) = password else {
        let reason = "the key is encrypted: ssl.key.password is needed";
        return Err(unusable(&pem.source, reason));
    };
    let rest = &text[at + ENCRYPTED_BEGIN.len()..];
    let coded = rest.split(ENCRYPTED_END).next().unwrap_or_default();
    let coded: String = coded.split_ascii_whitespace().collect();
    let unread = || unusable(&pem.source, "the encrypted key cannot be read");
    let der = BASE64.decode(coded).map_err(|_| unread())?;
    let info = EncryptedPrivateKeyInfo::try_from(der.as_slice()).map_err(|_| unread())?;
    let key = info.decrypt(password.expose()).map_err(|_| {
        let reason = "the key cannot be decrypted: ssl.key.password is wrong, or the cipher is \
                      none of PBES2 (openssl pkcs8 -topk8 -v2 aes256)";
        unusable(&pem.source, reason)
    })?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// Checks who issued a certificate and when it is valid, but not of which name it is.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name comes last: all else is checked.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// What a failed read or write of a connection means. Nothing but a certificate that one side
/// refuses is final once the handshake is over.
pub(crate) fn failure(address: &str, doing: &'static str, source: io::Error) -> ClientError {
    let found = source.get_ref().and_then(|inner| inner.downcast_ref());
    match found.and_then(refusal) {
        Some(reason) => ClientError::Tls {
            address: address.to_owned(),
            reason,
        },
        None => ClientError::Connection {
            address: address.to_owned(),
            doing,
            source,
        },
    }
}

/// The same during the handshake, where every answer that is not TLS is final as well.
pub(crate) fn handshake_failure(address: &str, source: io::Error) -> ClientError {
    const DOING: &str = "TLS handshake (is its security.protocol PLAINTEXT or SASL_PLAINTEXT?)";
    let tls = |reason: String| ClientError::Tls {
        address: address.to_owned(),
        reason,
    };
    match source.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::InvalidMessage(_)) => tls(
            "it does not speak TLS: its security.protocol may be PLAINTEXT or SASL_PLAINTEXT"
                .into(),
        ),
        // OpenSSL's word in TLS 1.2 for a client without a certificate, and others' for ciphers.
        Some(Error::AlertReceived(AlertDescription::HandshakeFailure)) => tls(
            "it ends the handshake: it may want a certificate of this client \
             (ssl.certificate.location or ssl.keystore.location)"
                .into(),
        ),
        Some(error) if refusal(error).is_none() => tls(error.to_string()),
        _ => failure(address, DOING, source),
    }
}

fn refusal(error: &Error) -> Option<String> {
    match error {
        // A signature is bad if another issuer of that name is trusted.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Some(
            "its certificate is not trusted: none of ssl.ca.location, or of the system, has issued \
             it"
            .into(),
        ),
        Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }),
        ) => Some(format!(
            "its certificate is of another name ({why}); an empty \
             ssl.endpoint.identification.algorithm turns this check off"
        )),
        Error::InvalidCertificate(why) => Some(format!("its certificate cannot be used: {why}")),
        Error::AlertReceived(alert) => is_about_certificate(*alert).then(|| {
            format!(
                "it refuses this client's certificate, or the lack of one ({alert:?}): see \
                 ssl.certificate.location or ssl.keystore.location"
            )
        }),
        _ => None,
    }
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}
