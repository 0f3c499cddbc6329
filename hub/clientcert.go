package hub

import (
	"crypto/tls"

	"github.com/capstan-cd/capstan/shared/fault"
)

// ClientCertificate reads a certificate and its private key, both in PEM. The
// error names neither's contents.
func ClientCertificate(cert, key string) (tls.Certificate, error) {
	if cert == "" || key == "" {
		return tls.Certificate{}, fault.With(fault.New(fault.Invalid, "a client certificate needs its private key, and a key its certificate"), "",
			"set both tlsClientCertData and tlsClientCertKey")
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return tls.Certificate{}, fault.With(fault.New(fault.Invalid, "the client certificate and its key cannot be read, or do not belong to each other"), "",
			"set tlsClientCertData and tlsClientCertKey to PEM, the key without a passphrase")
	}
	return pair, nil
}
