package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/yare-project/yare/internal/jointoken"
	"github.com/yare-project/yare/internal/pki"
)

// maxCA bounds what is read of a server that is not known yet.
const maxCA = 64 << 10

// authorityFile, in the data folder's pki, is the authority of the cluster that the node joined.
const authorityFile = "cluster-ca.pem"

// meet finds out which authority the server must have: the one that the node kept, or the server's own if it is what the token pins.
func (j *joining) meet(ctx context.Context) error {
	if u, err := url.Parse(j.url); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--server %q is no URL of an API server: write it as https://host:6443", j.url)
	}
	path := j.file(authorityFile)
	kept, err := os.ReadFile(path)
	switch {
	case err == nil:
		return j.trustKept(path, kept)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("cannot read %s: %w", path, plain(err))
	case j.token == jointoken.Token{}:
		return errors.New("this machine has not joined a cluster yet: give --token, as `yare token create` prints it on the server")
	}
	data, err := j.fetchAuthority(ctx)
	if err != nil {
		return err
	}
	if j.ca, err = pki.CheckPin(data, j.token.Pin); err != nil {
		return withoutPrefix(err)
	}
	j.trust()
	return nil
}

// trustKept takes the authority of an earlier run, if the token is not another cluster's.
func (j *joining) trustKept(path string, kept []byte) error {
	var err error
	if j.ca = kept; j.token.Pin != "" {
		if j.ca, err = pki.CheckPin(kept, j.token.Pin); err != nil {
			return fmt.Errorf("the data folder %s belongs to another cluster than the token: give another --data-dir, or leave that cluster with `yare down --purge --data-dir %[1]s` first", j.config.DataDir)
		}
	}
	certs, err := pki.ParseCertificates(j.ca)
	if err != nil || len(certs) == 0 {
		return fmt.Errorf("%s is damaged: remove it, and give --token", path)
	}
	j.trust()
	return nil
}

func (j *joining) trust() {
	j.roots = x509.NewCertPool()
	j.roots.AppendCertsFromPEM(j.ca)
}

// fetchAuthority asks for the server's authority over a connection that is not trusted yet.
func (j *joining) fetchAuthority(ctx context.Context) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url+"/cacerts", nil)
	if err != nil {
		return nil, err
	}
	stranger := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the pin decides
	defer stranger.CloseIdleConnections()
	answer, err := (&http.Client{Timeout: dialTime, Transport: stranger}).Do(request)
	if err != nil {
		return nil, j.explain(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxCA))
	if err != nil {
		return nil, j.explain(err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s is no Yare server: it answers %q for /cacerts; is --server right?", j.url, answer.Status)
	}
	return data, nil
}

// explain makes one clear line of what kept the node from its server.
func (j *joining) explain(err error) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused
	}
	var name x509.HostnameError
	if errors.As(err, &name) {
		return fmt.Errorf("the server's certificate is not for %s: start the server with --tls-san %[1]s, or give another --server", name.Host)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	if unreachable(err) {
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err
		}
		return fmt.Errorf("the server at %s cannot be reached: %w; is --server right, does the server run, and is the port open?", j.url, err)
	}
	return withoutPrefix(err)
}

// unreachable tells whether it was the way to the server, or its silence, that failed a request.
func unreachable(err error) bool {
	var dial *net.OpError
	var slow net.Error
	return errors.As(err, &dial) || errors.As(err, &slow) && slow.Timeout()
}

// withoutPrefix takes off the name of a package of which the user knows nothing.
func withoutPrefix(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "pki: "); ok {
		return errors.New(text)
	}
	return err
}
