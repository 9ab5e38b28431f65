//! Servers that a test plays, and what a connection to them receives.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use pyrklog_client::{
    Address, Arrival, Cancel, Client, ClientConfig, ClientError, Connection, Security, wait,
};

/// No answer takes so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs `serve` for its only connection.
pub fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    Address {
        host: "localhost".into(),
        port,
    }
}

pub fn client(address: &Address, security: Security) -> Client {
    let config = ClientConfig {
        bootstrap: vec![address.clone()],
        client_id: "test".into(),
        connect_timeout: PATIENCE,
        request_timeout: PATIENCE,
        security,
    };
    Client::new(config, Cancel::new().unwrap())
}

/// What comes next.
pub fn arrive(connection: &mut Connection) -> Result<Arrival, ClientError> {
    loop {
        connection.flush()?;
        match connection.receive()? {
            Arrival::Nothing => {
                let files = [(connection.as_fd(), connection.interest())];
                wait(&files, PATIENCE).unwrap();
            }
            arrival => return Ok(arrival),
        }
    }
}
