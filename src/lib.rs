//! rke-operator
