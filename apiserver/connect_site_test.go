package apiserver_test

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// A web site behind the proxy subresource is made to link to itself through the proxy.
func TestConnectRewritesLinks(t *testing.T) {
	const at = "/api/v1/namespaces/ns/pods/p/proxy"
	mux := http.NewServeMux()
	back := httptest.NewServer(mux)
	defer back.Close()
	page := `<html><body><a href="/there/">absolute</a><a href="here">relative</a><a href="https://example.com/x">elsewhere</a><img src="` + back.URL + `/i.png"/></body></html>`
	rewritten := `<html><body><a href="` + at + `/there/">absolute</a><a href="here">relative</a><a href="https://example.com/x">elsewhere</a><img src="` + at + `/i.png"/></body></html>`
	mux.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		fmt.Fprint(w, page)
	})
	mux.HandleFunc("/packed", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, page)
		z.Close()
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, page)
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page?q=1", http.StatusFound) })
	mux.HandleFunc("/forwarded", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Forwarded-Uri")) })

	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	h := connecting(t, must(url.Parse(back.URL)), "", nil)
	for path, want := range map[string]string{"/page": rewritten, "/packed": rewritten, "/text": page, "/forwarded": at + "/forwarded"} {
		r := must(client.Get(h.http.URL + at + path))
		body := readAll(t, r)
		if body != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, body, want)
		}
		if r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: the site said who may call this server", path)
		}
	}
	r := must(client.Get(h.http.URL + at + "/moved"))
	defer r.Body.Close()
	if to := r.Header.Get("Location"); r.StatusCode != http.StatusFound || to != at+"/page?q=1" {
		t.Errorf("redirect: %d to %q", r.StatusCode, to)
	}
}

func readAll(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	var body []byte
	buffer := make([]byte, 4096)
	for {
		n, err := r.Body.Read(buffer)
		body = append(body, buffer[:n]...)
		if err != nil {
			return string(body)
		}
	}
}
