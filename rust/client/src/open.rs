//! A connection's first exchange: which versions the broker has.

use pyrklog_wire::ErrorCode;
use pyrklog_wire::api_versions::{ApiVersionsRequest, ApiVersionsResponse};

use crate::config::{Address, ClientConfig};
use crate::connection::Connection;
use crate::error::{ClientError, Result};
use crate::transport::Transport;
use crate::versions::{ApiRanges, api};
use crate::wake::Cancel;

/// Of answers that are no records.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Of the first answer: its features take much more memory than on the wire.
const VERSIONS_BYTES_MAX: usize = 1 << 20;
const SOFTWARE_NAME: &str = "pyrklog";
const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Connects, and asks for the broker's versions. Authentication will stand between the two.
///
/// # Errors
/// `Connection`, `TimedOut`, `Protocol`, `Cancelled`.
pub(crate) fn open(
    address: &Address,
    config: &ClientConfig,
    cancel: &Cancel,
) -> Result<Connection> {
    let transport = Transport::connect(address, config.connect_timeout, cancel)?;
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
    connection.set_frame_limit(ANSWER_BYTES_MAX);
    Ok(connection)
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
    let frame = connection.exchange(
        api::API_VERSIONS,
        version,
        timeout,
        cancel,
        |out, version| request.encode(out, version),
    )?;
    // A broker that does not have the version answers in version 0.
    let refused = frame.body().starts_with(&[0, 35]);
    let version = if refused { 0 } else { version };
    ApiVersionsResponse::decode(frame.body(), version)
        .map_err(ClientError::decode(connection.address()))
}
