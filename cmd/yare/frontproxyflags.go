package main

import "github.com/spf13/pflag"

// addFrontProxy adds kube-apiserver's flags about front proxies: this server in front of others, and others in front of it.
func (f *flags) addFrontProxy(set *pflag.FlagSet) {
	p := &f.config.FrontProxy
	set.StringVar(&p.ProxyClientCertFile, "proxy-client-cert-file", "", "certificate that aggregated API servers are shown (default: one of the cluster's front-proxy authority)")
	set.StringVar(&p.ProxyClientKeyFile, "proxy-client-key-file", "", "private key of --proxy-client-cert-file")
	set.StringVar(&p.RequestheaderClientCAFile, "requestheader-client-ca-file", "", "further authorities of front proxies, which say in headers who asks")
	set.StringSliceVar(&p.RequestheaderAllowedNames, "requestheader-allowed-names", nil, "common names that front proxies' certificates may have (default: any)")
	set.StringSliceVar(&p.RequestheaderUsernameHeaders, "requestheader-username-headers", nil, "headers with the user's name (default: X-Remote-User)")
	set.StringSliceVar(&p.RequestheaderGroupHeaders, "requestheader-group-headers", nil, "headers with the user's groups (default: X-Remote-Group)")
	set.StringSliceVar(&p.RequestheaderUIDHeaders, "requestheader-uid-headers", nil, "headers with the user's uid (default: X-Remote-Uid)")
	set.StringSliceVar(&p.RequestheaderExtraHeadersPrefix, "requestheader-extra-headers-prefix", nil, "prefixes of headers with more about the user (default: X-Remote-Extra-)")
}
