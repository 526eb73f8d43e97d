module gradientmail.io/hack/cluster/pause

go 1.24.0
