package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// target is the server under measurement.
type target struct {
	base   string
	client *http.Client
}

// request is one request; its method is GET unless it says otherwise.
type request struct {
	method, path, contentType string
	body                      []byte
	header                    http.Header
}

const (
	asJSON      = "application/json"
	asStrategic = "application/strategic-merge-patch+json"
	asMerge     = "application/merge-patch+json"
	asApply     = "application/apply-patch+yaml"
)

// open sends a request whose answer the caller reads.
func (t *target) open(ctx context.Context, rq request) (*http.Response, error) {
	if rq.method == "" {
		rq.method = http.MethodGet
	}
	var body io.Reader
	if rq.body != nil {
		body = bytes.NewReader(rq.body)
	}
	req, err := http.NewRequestWithContext(ctx, rq.method, t.base+rq.path, body)
	if err != nil {
		return nil, err
	}
	if rq.body != nil {
		if rq.contentType == "" {
			rq.contentType = asJSON
		}
		req.Header.Set("Content-Type", rq.contentType)
	}
	req.Header.Set("Accept", asJSON)
	for name, values := range rq.header {
		req.Header[name] = values
	}
	return t.client.Do(req)
}

// send sends a request and reads the whole answer.
func (t *target) send(ctx context.Context, rq request) (int, http.Header, error) {
	code, header, _, err := t.read(ctx, rq)
	return code, header, err
}

func (t *target) read(ctx context.Context, rq request) (int, http.Header, []byte, error) {
	res, err := t.open(ctx, rq)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, data, err
}

// want sends a request and makes any other answer than those codes an error.
func (t *target) want(ctx context.Context, rq request, codes ...int) error {
	code, _, data, err := t.read(ctx, rq)
	if err != nil {
		return err
	}
	if !slices.Contains(codes, code) {
		return fmt.Errorf("%s %s: %d %.200s", rq.method, rq.path, code, data)
	}
	return nil
}

// poll asks until it is so or ctx ends.
func (t *target) poll(ctx context.Context, so func(context.Context) bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Version is what a server says it is, such as v1.36.2.
func Version(ctx context.Context, server *rest.Config) (string, error) {
	client, err := rest.HTTPClientFor(server)
	if err != nil {
		return "", err
	}
	t := target{base: strings.TrimSuffix(server.Host, "/"), client: client}
	code, _, data, err := t.read(ctx, request{path: "/version"})
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(data, &v); err != nil || code != http.StatusOK {
		return "", fmt.Errorf("%s/version: %d %.100s", server.Host, code, data)
	}
	return v.GitVersion, nil
}
