package main

import "github.com/spf13/pflag"

// addKubernetes adds flags that have the names and meanings of kube-apiserver's and kube-controller-manager's.
func (f *flags) addKubernetes(set *pflag.FlagSet) {
	c, k := &f.config, &f.config.Keys
	f.addAudit(set)
	c.NotReadySeconds, c.UnreachableSeconds = new(int64), new(int64)
	set.Int64Var(c.NotReadySeconds, "default-not-ready-toleration-seconds", 300, "seconds that a pod stays on a node that is not ready, unless it says")
	set.Int64Var(c.UnreachableSeconds, "default-unreachable-toleration-seconds", 300, "seconds that a pod stays on a node that is not reachable, unless it says")
	set.StringVar(&c.AdmissionConfigFile, "admission-control-config-file", "", "an AdmissionConfiguration for the admission plugins that can be configured")
	f.addFrontProxy(set)
	set.StringVar(&c.AtRest.ConfigFile, "encryption-provider-config", "", "an EncryptionConfiguration: what is encrypted on disk, and how (default: Secrets, with a key that is made in the data folder)")
	set.BoolVar(&c.AtRest.Reload, "encryption-provider-config-automatic-reload", false, "read the EncryptionConfiguration again when it changes")
	f.addIdentity(set)
	set.StringVar(&k.TLSCertFile, "tls-cert-file", "", "certificate of the API server, with its intermediates (default: one of the cluster's own authority)")
	set.StringVar(&k.TLSPrivateKeyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	set.StringVar(&k.ClientCAFile, "client-ca-file", "", "further authorities whose certificates say who a client is")
	set.StringArrayVar(&k.ServiceAccountKeyFiles, "service-account-key-file", nil, "further key that makes a service account's token good (repeat for more)")
	set.StringVar(&k.ServiceAccountSigningKeyFile, "service-account-signing-key-file", "", "key that signs tokens of service accounts (default: the cluster's own)")
	set.StringArrayVar(&k.ServiceAccountIssuers, "service-account-issuer", nil, "issuer in tokens of service accounts; repeat for others to accept")
	set.StringVar(&k.ServiceAccountJWKSURI, "service-account-jwks-uri", "", "where /.well-known/openid-configuration says that the keys are (default: below the issuer)")
	set.StringSliceVar(&k.APIAudiences, "api-audiences", nil, "what tokens must be for to be good here (default: the first --service-account-issuer)")
	set.DurationVar(&k.ServiceAccountMaxTokenExpiration, "service-account-max-token-expiration", 0, "how long a new token may live at most (default: a year)")
	set.BoolVar(&k.ServiceAccountExtendTokenExpiration, "service-account-extend-token-expiration", true, "let the tokens of pods live longer than these are told, for programs that do not read them again")
	set.StringSliceVar(&c.EnableAdmissionPlugins, "enable-admission-plugins", nil, "admission plugins to run besides those that run by default")
	set.StringSliceVar(&c.DisableAdmissionPlugins, "disable-admission-plugins", nil, "admission plugins not to run")
	set.StringSliceVar(&c.Controllers, "controllers", nil, "controllers to run: '*' for all, a name, or a name with '-' before it to leave it out (default: all)")
}
