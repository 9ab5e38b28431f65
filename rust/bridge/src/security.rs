//! `CoreSecurity` of `security/core_security.py` as a client has it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyrklog_client::{
    Address, Cancel, Client, ClientConfig, Credentials, Hash, Pem, Secret, Security, Tls,
    TlsSettings, Token, TokenSource, Tokens,
};

use crate::errors;
use crate::fields::field;

/// Longer lives are as good as endless.
const LIFETIME_S_MAX: f64 = 1e9;

/// (where it comes from, PEM).
type PemRow = (String, String);
/// (token, seconds of life or None, extensions).
type TokenRow = (String, Option<f64>, Vec<(String, String)>);

/// Reads the field `security` of the settings of a client.
pub fn security(settings: &Bound<'_, PyAny>) -> PyResult<Security> {
    let py = settings.py();
    let given: Bound<'_, PyAny> = field(settings, pyo3::intern!(py, "security"))?;
    let is_tls: bool = field(&given, pyo3::intern!(py, "is_tls"))?;
    Ok(Security {
        tls: if is_tls { Some(tls(&given)?) } else { None },
        credentials: credentials(&given)?,
    })
}

/// Whether the first broker that can be reached lets this client in; see `scanning/access.py`.
#[pyfunction]
pub fn check_access(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<()> {
    let bootstrap: String = field(settings, pyo3::intern!(py, "bootstrap_servers"))?;
    let timeout_ms: u64 = field(settings, pyo3::intern!(py, "timeout_ms"))?;
    let timeout = Duration::from_millis(timeout_ms);
    let config = ClientConfig {
        bootstrap: Address::parse_list(&bootstrap)
            .map_err(|error| PyValueError::new_err(error.to_string()))?,
        client_id: field(settings, pyo3::intern!(py, "client_id"))?,
        connect_timeout: timeout,
        request_timeout: timeout,
        security: security(settings)?,
    };
    let cancel = Cancel::new().map_err(|error| errors::os(&error, None))?;
    let asked = py.detach(|| Client::new(config, cancel).refresh(&[]).map(|_| ()));
    match asked {
        // A client that asks next waits for a broker.
        Err(error) if !error.is_retriable() => Err(errors::scan(error.into())),
        _ => Ok(()),
    }
}

fn tls(given: &Bound<'_, PyAny>) -> PyResult<Tls> {
    let py = given.py();
    let roots: Option<PemRow> = field(given, pyo3::intern!(py, "roots"))?;
    let identity: Option<(PemRow, PemRow)> = field(given, pyo3::intern!(py, "identity"))?;
    let key_password: Option<String> = field(given, pyo3::intern!(py, "key_password"))?;
    let pem = |(source, text): PemRow| Pem {
        source,
        text: Secret::new(text),
    };
    let settings = TlsSettings {
        roots: roots.map(pem),
        identity: identity.map(|(chain, key)| (pem(chain), pem(key))),
        key_password: key_password.map(Secret::new),
        checks_name: field(given, pyo3::intern!(py, "checks_name"))?,
    };
    Tls::new(&settings).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn credentials(given: &Bound<'_, PyAny>) -> PyResult<Option<Credentials>> {
    let py = given.py();
    let mechanism: String = field(given, pyo3::intern!(py, "mechanism"))?;
    let username: String = field(given, pyo3::intern!(py, "username"))?;
    let password: String = field(given, pyo3::intern!(py, "password"))?;
    let password = Secret::new(password);
    let hash = match mechanism.as_str() {
        "" => return Ok(None),
        "PLAIN" => return Ok(Some(Credentials::Plain { username, password })),
        "OAUTHBEARER" => {
            let callable: Py<PyAny> = field(given, pyo3::intern!(py, "token"))?;
            let tokens = Tokens::new(Box::new(Source(Arc::new(callable))));
            return Ok(Some(Credentials::OAuthBearer(tokens)));
        }
        "SCRAM-SHA-256" => Hash::Sha256,
        "SCRAM-SHA-512" => Hash::Sha512,
        other => {
            return Err(PyValueError::new_err(format!(
                "unknown mechanism '{other}'"
            )));
        }
    };
    Ok(Some(Credentials::Scram {
        hash,
        username,
        password,
    }))
}

/// A callable of Python.
struct Source(Arc<Py<PyAny>>);

impl TokenSource for Source {
    fn token(&self) -> Result<Token, String> {
        let found = Python::try_attach(|py| {
            let called = self.0.bind(py).call0();
            let row = called.and_then(|row| row.extract::<TokenRow>());
            row.map_err(|error| error.to_string())
        });
        let found = found.ok_or("Python is ending")?;
        let (value, seconds, extensions) = found?;
        let lifetime =
            seconds.map(|left| Duration::try_from_secs_f64(left.clamp(0.0, LIFETIME_S_MAX)));
        Ok(Token {
            value: Secret::new(value),
            lifetime: lifetime.transpose().map_err(|error| error.to_string())?,
            extensions,
        })
    }

    fn elsewhere(&self, work: Box<dyn FnOnce() + Send>) -> bool {
        let thread = thread::Builder::new().name("token".into());
        thread.spawn(work).is_ok()
    }
}
