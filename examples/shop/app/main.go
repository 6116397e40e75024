// Command app is the example's web shop: it greets with a text from a ConfigMap, keeps a price list behind a Secret, and asks the
// Kubernetes API, with the pod's own service account, who its sisters are.
package main

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", greet)
	mux.HandleFunc("GET /prices", prices)
	mux.HandleFunc("GET /sisters", sisters)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	server := &http.Server{Addr: ":8080", Handler: logged(mux), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(drain)
	}()
	slog.Info("the shop is open", "address", server.Addr, "pod", os.Getenv("POD_NAME"))
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		slog.Error("the shop cannot open", "error", err)
		os.Exit(1)
	}
	slog.Info("the shop is closed")
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			slog.Info("request", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr)
		}
		next.ServeHTTP(w, r)
	})
}

func greet(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "%s (pod %s on %s)\n", os.Getenv("GREETING"), os.Getenv("POD_NAME"), os.Getenv("NODE_NAME"))
}

func prices(w http.ResponseWriter, r *http.Request) {
	want, err := os.ReadFile("/etc/shop/key/api-key")
	if err != nil {
		http.Error(w, "no key: "+err.Error(), http.StatusInternalServerError)
		return
	}
	got := r.Header.Get("X-Api-Key")
	if subtle.ConstantTimeCompare([]byte(got), []byte(strings.TrimSpace(string(want)))) != 1 {
		http.Error(w, "wrong key in X-Api-Key", http.StatusUnauthorized)
		return
	}
	http.ServeFile(w, r, "/etc/shop/config/prices.json")
}

func sisters(w http.ResponseWriter, r *http.Request) {
	names, err := podNames(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, strings.Join(names, "\n"))
}

// podNames lists the shop's pods through the API server, as the pod's service account.
func podNames(ctx context.Context) ([]string, error) {
	token, err := os.ReadFile(filepath.Join(serviceAccount, "token"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(serviceAccount, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	url := fmt.Sprintf("https://%s/api/v1/namespaces/%s/pods?labelSelector=app%%3Dshop", host, os.Getenv("POD_NAMESPACE"))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the API server answered %s", response.Status)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	sort.Strings(names)
	return names, nil
}
