#!/bin/sh
# Makes the certificates of compose.yaml in a directory, unless they are there: three
# authorities (etcd, the nodes among themselves, clients) and a certificate for each use.
#
#   certificates.sh DIR
set -eu
dir=$1
if [ -e "$dir/complete" ]; then exit 0; fi
cd "$dir"
days=3650

authority() { # name
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days $days -subj "/CN=shardwatch $1" \
		-keyout "$1-ca.key" -out "$1-ca.crt" 2>/dev/null
}

certificate() { # name authority usages names
	openssl req -x509 -CA "$2-ca.crt" -CAkey "$2-ca.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days $days \
		-subj "/CN=$1" -addext basicConstraints=critical,CA:false -addext "extendedKeyUsage=$3" \
		${4:+-addext "subjectAltName=$4"} -keyout "$1.key" -out "$1.crt" 2>/dev/null
}

authority etcd
authority peers
authority clients
certificate etcd etcd serverAuth,clientAuth DNS:etcd-0,DNS:etcd-1,DNS:etcd-2,DNS:localhost,IP:127.0.0.1
certificate etcd-client etcd clientAuth
certificate peer peers serverAuth,clientAuth DNS:cachenode-0,DNS:cachenode-1,DNS:cachenode-2
certificate node clients serverAuth DNS:cachenode-0,DNS:cachenode-1,DNS:cachenode-2,DNS:localhost,IP:127.0.0.1
certificate admin clients clientAuth
certificate metrics clients clientAuth
openssl rand -base64 32 >gossip.key
rm ./*-ca.key # no further certificate is made

# The nodes run as 65532, Prometheus as 65534, etcd as root.
chmod 0644 ./*.crt
chmod 0600 ./*.key
if [ "$(id -u)" = 0 ]; then
	chown 65532:65532 node.* peer.* etcd-client.* admin.* gossip.key
	chown 65534:65534 metrics.*
fi
touch complete
