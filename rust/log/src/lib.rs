//! The commit log in Kafka's own file formats. No sockets; time is an argument; files through the Disk trait.
