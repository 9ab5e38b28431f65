//! Whether brokers take batches that bring their offsets (ProduceAt).
//!
//! The API is not advertised. Each broker is sent an empty request: one that does not know the API
//! hangs up, twice.

use std::collections::HashMap;

use pyrklog_client::{Address, Client, ClientError, Connection, Opener, api};
use pyrklog_wire::produce::encode_request_at;

use crate::error::{ErrorKind, ProduceError, Result};
use crate::lane::Lane;
use crate::options::ProduceOptions;

/// How often a broker is asked that hangs up.
const TRIES: usize = 2;

/// Connections to all brokers that answer.
///
/// # Errors
/// `Unsupported` if one does not know the API, and any.
pub(crate) fn lanes(
    client: &mut Client,
    options: &ProduceOptions,
) -> Result<HashMap<Address, Lane>> {
    let brokers = client.refresh(&[])?.brokers.values();
    let addresses: Vec<Address> = brokers.map(|broker| broker.address.clone()).collect();
    let opener = client.opener();
    let mut found = HashMap::new();
    for address in addresses {
        // One that is away is asked by the first batch for it.
        if let Some(connection) = ask(&opener, client, &address, options)? {
            found.insert(address, Lane::new(connection));
        }
    }
    Ok(found)
}

fn ask(
    opener: &Opener,
    client: &Client,
    address: &Address,
    options: &ProduceOptions,
) -> Result<Option<Connection>> {
    let timeout = options.client.request_timeout;
    for _ in 0..TRIES {
        let mut connection = match opener.open(address) {
            Ok(connection) => connection,
            Err(error) if error.is_retriable() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (api, cancel) = (api::PRODUCE_AT, client.cancel());
        let asked = connection.exchange(api, api.max, timeout, cancel, |out, _| {
            encode_request_at(out, 0, &[]);
        });
        match asked {
            Ok(_) => return Ok(Some(connection)),
            Err(ClientError::Connection { .. }) => {}
            Err(error) if error.is_retriable() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let text = format!(
        "broker {address} does not take records at offsets of their own: that takes a broker of \
         pyrklog, of this version or later"
    );
    Err(ProduceError::new(ErrorKind::Unsupported, text))
}
