//! A connection's beginning: TLS, which versions the broker has, authentication.

use std::os::fd::AsFd;
use std::time::Instant;

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};

use crate::config::{Address, ClientConfig};
use crate::connection::{Arrival, Connection};
use crate::error::{ClientError, Result};
use crate::transport::Transport;
use crate::versions::{ApiRanges, api};
use crate::wake::{Cancel, Ready, wait, wait_failed};

/// Of answers that are no records.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Of the first answer: its features take much more memory than on the wire.
const VERSIONS_BYTES_MAX: usize = 1 << 20;
const SOFTWARE_NAME: &str = "pyrklog";
const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Connects, asks for the broker's versions, and authenticates.
///
/// # Errors
/// `Connection`, `TimedOut`, `Protocol`, `Cancelled`, `Tls`, `Authentication`.
pub(crate) fn open(
    address: &Address,
    config: &ClientConfig,
    cancel: &Cancel,
) -> Result<Connection> {
    let mut transport = Transport::connect(address, config.connect_timeout, cancel)?;
    if let Some(tls) = &config.security.tls {
        transport = transport.secure(tls, address, config.connect_timeout, cancel)?;
    }
    let name = address.to_string();
    let mut connection = Connection::new(transport, &name, &config.client_id, VERSIONS_BYTES_MAX);
    let mut answer = ask(&mut connection, api::API_VERSIONS.max, config, cancel)?;
    if answer.error_code == ErrorCode::UNSUPPORTED_VERSION {
        answer = ask(&mut connection, 0, config, cancel)?;
    }
    if !answer.error_code.is_none() {
        return Err(ClientError::Refused {
            address: name,
            api: api::API_VERSIONS.name,
            code: answer.error_code,
        });
    }
    connection.set_ranges(ApiRanges::new(answer.apis));
    authenticate(&mut connection, config, cancel)?;
    connection.set_frame_limit(ANSWER_BYTES_MAX);
    Ok(connection)
}

fn authenticate(connection: &mut Connection, config: &ClientConfig, cancel: &Cancel) -> Result<()> {
    let Some(credentials) = &config.security.credentials else {
        return Ok(());
    };
    if connection.ranges().common(api::SASL_HANDSHAKE).is_none() {
        return Err(ClientError::Authentication {
            address: connection.address().to_owned(),
            mechanism: credentials.mechanism(),
            reason: "the broker is older than Kafka 1.0".into(),
        });
    }
    connection.authenticate(credentials)?;
    let until = Instant::now() + config.connect_timeout;
    loop {
        cancel.check()?;
        connection.flush()?;
        if connection.receive()? != Arrival::Nothing {
            let address = connection.address();
            return Err(ClientError::protocol(
                address,
                "an answer without a request",
            ));
        }
        if !connection.is_authenticating() {
            return Ok(());
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientError::TimedOut {
                address: connection.address().to_owned(),
                doing: "authentication",
                seconds: config.connect_timeout.as_secs_f64(),
            });
        }
        let files = [
            (connection.as_fd(), connection.interest()),
            (cancel.as_fd(), Ready::Read),
        ];
        wait(&files, left).map_err(wait_failed)?;
    }
}

fn ask(
    connection: &mut Connection,
    version: i16,
    config: &ClientConfig,
    cancel: &Cancel,
) -> Result<ApiVersionsResponse> {
    let request = ApiVersionsRequest {
        client_software_name: SOFTWARE_NAME,
        client_software_version: SOFTWARE_VERSION,
    };
    let timeout = config.connect_timeout;
    let asked = connection.exchange(
        api::API_VERSIONS,
        version,
        timeout,
        cancel,
        |out, version| request.encode(out, version),
    );
    let frame = asked.map_err(|error| match connection.begins_with_tls_alert() {
        false => error,
        true => ClientError::Tls {
            address: connection.address().to_owned(),
            reason: "it speaks TLS only: security.protocol is SSL or SASL_SSL there".into(),
        },
    })?;
    // A broker that does not have the version answers in version 0.
    let refused = frame.body().starts_with(&[0, 35]);
    let version = if refused { 0 } else { version };
    ApiVersionsResponse::decode(frame.body(), version)
        .map_err(ClientError::decode(connection.address()))
}
